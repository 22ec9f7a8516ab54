//! The state of everything. See `docs/model.md`.
use crate::action::Action;
use crate::asks::Ask;
use crate::checks::{Breakers, Passed};
use crate::clocked::Clocked;
use crate::config::{Config, Luck};
use crate::kernel::Tree;
use crate::mail::{Lane, Letter, Mail, Way};
use crate::rules::{Checked, Reached, Witness, Wrong};
use crate::shared::{Part, Shared};
use mcpvisor_lifecycle::registry::{Registry, Urgency};
use mcpvisor_lifecycle::seeded::Bug;
use mcpvisor_lifecycle::server::Server;
use mcpvisor_lifecycle::session::Session;
use mcpvisor_lifecycle::{Approvals, Moment, SessionId};
use std::cell::RefCell;

/// What a step needs besides the state.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) asks: &'a [(usize, Ask)],
    pub(crate) bug: Option<Bug>,
    pub(crate) reached: &'a Reached,
    /// Where a replay writes what the machines do.
    pub(crate) story: Option<&'a RefCell<Vec<String>>>,
}

impl Context<'_> {
    pub(crate) fn saw(&self, witness: Witness) {
        self.reached.note(witness);
    }

    pub(crate) fn saw_if(&self, condition: bool, witness: Witness) {
        if condition {
            self.saw(witness);
        }
    }

    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(story) = self.story {
            story.borrow_mut().push(line());
        }
    }
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Unsent,
    /// With the session that it means, where there is one.
    Waiting(Option<u8>),
    /// The registry was lost: it is asked again, of that session.
    Again(Option<u8>),
    Answered,
    /// An open that was answered with this session. Until its client goes on, the answer may still be on its way.
    Opened(u8),
    /// An open that was answered at once: it holds its session from then on, whether or not its caller hears the answer.
    Joined(u8),
    /// A call that is in flight.
    Calling(u8),
    /// A call that is past the gate, and will be held for a person.
    ToHold(u8),
    /// A call that waits at the parked gate.
    AtGate(u8),
    /// A call that waits for a person, with its number there.
    Held(u8, u8),
    /// A change, with how many steps of it were done before.
    Changing(u8, u8),
    /// An add that was answered. Until its client goes on, the answer may still be on its way.
    Added(u8),
    /// Between two steps of one.
    Between(u8, u8),
    /// Its caller went away.
    Gone,
}

impl Asked {
    /// Its client may go on.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Self::Answered | Self::Opened(_) | Self::Joined(_) | Self::Added(_) | Self::Gone)
    }
}

/// What a server is to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Standing {
    Joining,
    #[default]
    Member,
    /// A member of which nothing more is asked.
    Held,
    Retired,
    Forgotten,
}

/// A server of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct ServerCell {
    /// None before the start, when it is lost, and after the session's end.
    pub(crate) machine: Option<Shared<Clocked<Server>>>,
    pub(crate) lost: bool,
    /// Its session knows that it is lost.
    pub(crate) known_lost: bool,
    /// It was told to stop.
    pub(crate) stopped: bool,
    /// The first end of this incarnation that was told was its client's.
    pub(crate) client_first: Option<bool>,
    /// How many times it is being reaped without its actor, and how many of these have still a budget that runs.
    pub(crate) reaps: u8,
    pub(crate) reap_timers: u8,
    pub(crate) trees: Vec<Tree>,
    pub(crate) standing: Standing,
    /// It is to stand in the place of this one; and the two must never run at once.
    pub(crate) replaces: Option<(u8, bool)>,
    /// The ask whose add has published it.
    pub(crate) added_by: Option<u8>,
    /// What ran when it was told to start again.
    pub(crate) restart_of: Option<u8>,
}

/// A session, from its start on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) id: SessionId,
    /// A place in the configuration's keys.
    pub(crate) key: u8,
    pub(crate) tenant: Option<&'static str>,
    /// None when it is lost, or over.
    pub(crate) machine: Option<Shared<Clocked<Session>>>,
    /// Its record has the final state.
    pub(crate) over: bool,
    /// The registry has told it to close.
    pub(crate) closing: bool,
    pub(crate) gate_open: bool,
    /// It is being reaped without its actor: nothing of it is launched any more, and what is born is killed.
    pub(crate) condemned: bool,
    pub(crate) reap_timers: u8,
    /// A former daemon's.
    pub(crate) recovered: bool,
    /// It was reaped without its actor, at some time.
    pub(crate) was_lost: bool,
    /// Its token means nothing any more.
    pub(crate) revoked: bool,
    /// The ask that began it.
    pub(crate) creator: u8,
    /// Its gate tells when no call is in flight any more.
    pub(crate) tells_drained: bool,
    /// The same, once, before any close.
    pub(crate) tells_quiet: bool,
    pub(crate) parked: bool,
    /// Nobody is let in any more: its servers could not be started again.
    pub(crate) refuses: bool,
    /// When something last happened at its gate, on its own clock.
    pub(crate) last: Moment,
    /// Somebody uses it: on its way to the registry, and known there while it was live.
    pub(crate) used: bool,
    pub(crate) known_used: bool,
    pub(crate) approvals: Approvals,
    pub(crate) servers: Vec<ServerCell>,
}

impl Part for Cell {
    fn seal_parts(&mut self) {
        if let Some(machine) = &mut self.machine {
            machine.seal();
        }
        for server in &mut self.servers {
            if let Some(machine) = &mut server.machine {
                machine.seal();
            }
        }
    }
}

impl Cell {
    pub(crate) fn lives(&self) -> bool {
        self.trees().any(Tree::lives)
    }

    /// Nothing of it lives or can still be born.
    pub(crate) fn is_gone(&self) -> bool {
        self.trees().all(Tree::is_gone)
    }

    pub(crate) fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.servers.iter().flat_map(|server| &server.trees)
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) registry: Shared<Clocked<Registry>>,
    /// In the order of their starts; a session's place is its name in the model.
    pub(crate) sessions: Vec<Shared<Cell>>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) mail: Mail,
    pub(crate) luck: Luck,
    /// How far anybody may be hurried: the most that anyone asked for.
    pub(crate) urged: Urgency,
    /// The most that shutdowns asked for.
    pub(crate) shutdown: Option<Urgency>,
    pub(crate) finished: bool,
    /// Of opens that wait for a slot: who got one while each of them could have had it.
    pub(crate) passed: Vec<Passed>,
    /// What is known of breakers.
    pub(crate) breakers: Breakers,
    /// The asks whose holders have ended, as bits.
    pub(crate) ended_holders: u32,
    pub(crate) wrong: Option<Wrong>,
}

impl World {
    pub(crate) fn new(context: &Context<'_>) -> Self {
        let registry = seeded(Registry::new(context.config.registry()), context.bug);
        let mut world = Self {
            registry: Shared::new(Clocked::new(registry)),
            sessions: Vec::new(),
            asked: vec![Asked::Unsent; context.asks.len()],
            mail: Mail::default(),
            luck: context.config.luck,
            urged: Urgency::Drain,
            shutdown: None,
            finished: false,
            passed: Vec::new(),
            breakers: Breakers::default(),
            ended_holders: 0,
            wrong: None,
        };
        world.seal();
        world
    }

    fn seal(&mut self) {
        self.registry.seal();
        self.sessions.iter_mut().for_each(Shared::seal);
    }

    /// What follows from an action.
    pub(crate) fn after(&self, context: &Context<'_>, action: Action) -> Self {
        let mut next = self.clone();
        let done = next.act(context, action).and_then(|()| next.check(context));
        next.wrong = done.err();
        next.seal();
        next
    }

    pub(crate) fn cell(&self, session: u8) -> &Cell {
        self.sessions[usize::from(session)].get()
    }

    pub(crate) fn edit(&mut self, session: u8) -> &mut Cell {
        self.sessions[usize::from(session)].edit()
    }

    pub(crate) fn server(&mut self, session: u8, place: u8) -> &mut ServerCell {
        &mut self.edit(session).servers[usize::from(place)]
    }

    /// The place of a session.
    pub(crate) fn place(&self, id: SessionId) -> Option<u8> {
        let found = self.sessions.iter().position(|cell| cell.get().id == id);
        found.map(|place| u8::try_from(place).expect("a configuration starts few sessions"))
    }

    /// The places of all sessions.
    pub(crate) fn places(&self) -> impl Iterator<Item = u8> + use<> {
        0..u8::try_from(self.sessions.len()).expect("a configuration starts few sessions")
    }

    pub(crate) fn post(&mut self, session: u8, way: Way, letter: Letter) {
        self.mail.post(Lane { session, way }, letter);
    }

    fn act(&mut self, context: &Context<'_>, action: Action) -> Checked {
        match action {
            Action::Ask(number) => self.ask(context, usize::from(number)),
            Action::Vanish(number) => self.vanish(context, usize::from(number)),
            Action::Deliver(lane) => self.deliver(context, lane),
            Action::RegistryTimer => self.registry_timer(context),
            Action::SessionTimer(session) => self.session_timer(context, session),
            Action::ServerTimer(session, place) => self.server_timer(context, session, place),
            Action::Birth { .. }
            | Action::MainEnds { .. }
            | Action::HelperEnds { .. }
            | Action::Handshake { .. }
            | Action::CommandEnds { .. }
            | Action::OtherEra { .. }
            | Action::HangUp { .. } => self.kernel_acts(context, action),
            Action::Look(session, place, heard) => self.look_at_health(context, session, place, heard),
            Action::CallEnds(number) => {
                self.end_call(context, number);
                Ok(())
            }
            Action::Hold(number) => {
                self.hold(context, number);
                Ok(())
            }
            Action::HoldEnds(number) => self.hold_times_out(context, number),
            Action::HolderEnds(number) => self.holder_ends(context, number),
            Action::ClientGone(session) => {
                self.luck.hangups -= 1;
                self.post(session, Way::Client, Letter::ClientGone);
                Ok(())
            }
            Action::LoseServer(session, place) => {
                self.lose_server(session, place);
                Ok(())
            }
            Action::LoseSession(session) => {
                self.lose_session(session);
                Ok(())
            }
            Action::SessionReaped(session) => self.session_reaped(session),
            Action::SessionNotReaped(session) => {
                self.edit(session).reap_timers -= 1;
                self.post(session, Way::QuarantineNote, Letter::Quarantined);
                Ok(())
            }
            Action::ServerReaped(session, place) => {
                self.server_reaped(session, place);
                Ok(())
            }
            Action::ServerNotReaped(session, place) => {
                self.server(session, place).reap_timers -= 1;
                self.post(session, Way::ServerNotReaped(place), Letter::Reaped { empty: false });
                Ok(())
            }
            Action::LoseRegistry => self.lose_registry(context),
            Action::Die => self.die(context),
        }
    }
}

/// The machine with the bug that is looked for.
pub(crate) fn seeded<M: Seed>(machine: M, bug: Option<Bug>) -> M {
    match bug {
        Some(bug) => machine.seed(bug),
        None => machine,
    }
}

/// A machine that can carry a bug.
pub(crate) trait Seed {
    fn seed(self, bug: Bug) -> Self;
}
impl Seed for Registry {
    fn seed(self, bug: Bug) -> Self {
        self.with_bug(bug)
    }
}
impl Seed for Session {
    fn seed(self, bug: Bug) -> Self {
        self.with_bug(bug)
    }
}
impl Seed for Server {
    fn seed(self, bug: Bug) -> Self {
        self.with_bug(bug)
    }
}
impl Seed for Approvals {
    fn seed(self, bug: Bug) -> Self {
        self.with_bug(bug)
    }
}
