//! What can happen next.
use crate::asks::Ask;
use crate::config::Config;
use crate::kernel::{Command, Tree};
use crate::mail::Lane;
use crate::world::{Asked, Cell, Context, World};
use mcpvisor_lifecycle::server::Mode;

/// One thing that can happen. Sessions are named by their place in the world, servers by theirs in the session, trees by theirs in the
/// server, asks by their place among all asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A client asks; or asks again, of the registry's successor.
    Ask(u8),
    /// The caller of a request that waits goes away.
    Vanish(u8),
    /// The oldest letter of a lane arrives.
    Deliver(Lane),
    /// The registry's timer fires.
    RegistryTimer,
    /// A session's.
    SessionTimer(u8),
    /// A server's.
    ServerTimer(u8, u8),
    /// A server's timer fires, and it is looked at first: it was heard of, or not.
    Look(u8, u8, bool),
    /// A call is answered by its server.
    CallEnds(u8),
    /// A call is held for a person.
    Hold(u8),
    /// Nobody has decided a held call in time.
    HoldEnds(u8),
    /// The process that holds the lease of an open ends.
    HolderEnds(u8),
    /// A launch is answered.
    Birth { session: u8, server: u8, tree: u8, works: bool },
    /// A main process ends, by itself or because it was told to.
    MainEnds { session: u8, server: u8, tree: u8, by_itself: bool, normal: bool },
    /// A helper ends.
    HelperEnds { session: u8, server: u8, tree: u8 },
    /// A handshake is answered.
    Handshake { session: u8, server: u8, tree: u8, works: bool },
    /// A stop command ends.
    CommandEnds { session: u8, server: u8, tree: u8 },
    /// A handshake tells that another era may do.
    OtherEra { session: u8, server: u8, tree: u8 },
    /// The client of a direct server hangs up.
    HangUp { session: u8, server: u8, tree: u8 },
    /// The client of a direct session is gone.
    ClientGone(u8),
    /// A server's actor is lost.
    LoseServer(u8, u8),
    /// A session's.
    LoseSession(u8),
    /// A session that lost its actor is reaped.
    SessionReaped(u8),
    /// It is not, in time.
    SessionNotReaped(u8),
    /// A server that lost its actor is reaped.
    ServerReaped(u8, u8),
    /// It is not, in time.
    ServerNotReaped(u8, u8),
    /// The registry's actor is lost; its successor takes over.
    LoseRegistry,
    /// The daemon is killed; the next one takes over.
    Die,
}

impl Action {
    /// Bad luck need not come: a state in which nothing else is left is at rest.
    pub(crate) fn is_bad_luck(self) -> bool {
        match self {
            Self::Vanish(_)
            | Self::ClientGone(_)
            | Self::HangUp { .. }
            | Self::LoseServer(..)
            | Self::LoseSession(_)
            | Self::LoseRegistry
            | Self::Die
            | Self::HolderEnds(_)
            | Self::OtherEra { .. }
            | Self::Look(..)
            | Self::MainEnds { by_itself: true, .. } => true,
            // An unkilled launch works in the end, if it does not fail.
            _ => false,
        }
    }
}

/// The few servers of a session, and the few trees of a server, counted.
fn counted<T>(all: &[T]) -> impl Iterator<Item = (u8, &T)> {
    (0..=u8::MAX).zip(all)
}

impl World {
    /// All that can happen next, in an order that depends on the state alone.
    pub(crate) fn choices(&self, context: &Context<'_>, out: &mut Vec<Action>) {
        if self.wrong.is_some() {
            return;
        }
        let config = context.config;
        self.of_clients(context, out);
        out.extend(self.mail.lanes().map(Action::Deliver));
        if self.registry.get().due().is_some() {
            out.push(Action::RegistryTimer);
        }
        for session in self.places() {
            if !self.cell(session).over {
                self.of_session(config, session, out);
            }
        }
        if self.luck.lost_registries > 0 && !self.sessions.is_empty() {
            out.push(Action::LoseRegistry);
        }
        if self.luck.deaths > 0 && !self.sessions.is_empty() {
            out.push(Action::Die);
        }
    }

    fn of_clients(&self, context: &Context<'_>, out: &mut Vec<Action>) {
        let (mut before, mut ready) = (usize::MAX, true);
        for (number, (asked, (client, ask))) in (0..=u8::MAX).zip(self.asked.iter().zip(context.asks)) {
            if *client != before {
                (before, ready) = (*client, true);
            }
            match asked {
                Asked::Unsent if ready => out.push(Action::Ask(number)),
                Asked::Again(_) | Asked::Between(..) => out.push(Action::Ask(number)),
                Asked::Calling(_) => out.push(Action::CallEnds(number)),
                Asked::ToHold(_) => out.push(Action::Hold(number)),
                Asked::Held(..) => out.push(Action::HoldEnds(number)),
                _ => {}
            }
            let waits = matches!(
                asked,
                Asked::Waiting(_)
                    | Asked::Calling(_)
                    | Asked::ToHold(_)
                    | Asked::AtGate(_)
                    | Asked::Held(..)
                    | Asked::Changing(..)
            );
            if waits && self.luck.vanish > 0 && ask.is_answered() {
                out.push(Action::Vanish(number));
            }
            let held = matches!(ask, Ask::Open(open) if open.holder)
                && self.ended_holders & (1 << number) == 0
                && !matches!(asked, Asked::Unsent | Asked::Gone);
            if held && self.luck.holders > 0 {
                out.push(Action::HolderEnds(number));
            }
            // An answer may be on its way as long as its client does nothing else.
            let on_its_way = matches!(asked, Asked::Opened(_)) && ask.waits_for_ready()
                || matches!(asked, Asked::Added(_));
            if on_its_way && self.luck.vanish > 0 {
                let after = usize::from(number) + 1;
                let next = self.asked.get(after).filter(|_| context.asks[after].0 == *client);
                if next.is_none_or(|next| *next == Asked::Unsent) {
                    out.push(Action::Vanish(number));
                }
            }
            ready &= asked.is_settled();
        }
    }

    fn of_session(&self, config: &Config, session: u8, out: &mut Vec<Action>) {
        let cell = self.cell(session);
        if let Some(machine) = &cell.machine {
            if machine.get().due().is_some() && self.may_fire(cell) {
                out.push(Action::SessionTimer(session));
            }
            if self.luck.lost_sessions > 0 {
                out.push(Action::LoseSession(session));
            }
            if self.luck.hangups > 0 && config.is_direct() {
                out.push(Action::ClientGone(session));
            }
        }
        if cell.condemned {
            if cell.is_gone() {
                out.push(Action::SessionReaped(session));
            }
            if cell.reap_timers > 0 {
                out.push(Action::SessionNotReaped(session));
            }
        }
        for (server, it) in counted(&cell.servers) {
            if let Some(machine) = &it.machine {
                if machine.get().due().is_some() {
                    if !machine.get().machine.is_watched() {
                        out.push(Action::ServerTimer(session, server));
                    } else if self.luck.looks.is_none_or(|looks| looks > 0) {
                        out.extend([true, false].map(|heard| Action::Look(session, server, heard)));
                    }
                }
                if self.luck.lost_servers > 0 {
                    out.push(Action::LoseServer(session, server));
                }
            }
            if it.reaps > 0 && it.trees.iter().all(Tree::is_gone) {
                out.push(Action::ServerReaped(session, server));
            }
            if it.reap_timers > 0 {
                out.push(Action::ServerNotReaped(session, server));
            }
            let doomed = cell.condemned || it.reaps > 0;
            for (tree, of) in counted(&it.trees) {
                let direct = config.kind(server).mode == Mode::Direct;
                self.of_tree(config, [session, server, tree], of, doomed, direct, out);
            }
        }
    }

    fn of_tree(
        &self,
        config: &Config,
        [session, server, tree]: [u8; 3],
        of: &Tree,
        doomed: bool,
        direct: bool,
        out: &mut Vec<Action>,
    ) {
        if of.unborn {
            if !doomed {
                out.push(Action::Birth { session, server, tree, works: true });
            }
            if doomed || of.killed_early || self.luck.failed_launches > 0 {
                out.push(Action::Birth { session, server, tree, works: false });
            }
        }
        if of.command == Command::Runs {
            out.push(Action::CommandEnds { session, server, tree });
        }
        if of.main {
            let ends = |by_itself, normal| Action::MainEnds { session, server, tree, by_itself, normal };
            if of.stdin_closed {
                out.push(ends(false, true));
            }
            if of.terminated || of.killed {
                out.push(ends(false, false));
            }
            if self.luck.exits > 0 {
                out.push(ends(true, false));
                out.push(ends(true, true));
            }
            if of.asked {
                out.push(Action::Handshake { session, server, tree, works: true });
                if self.luck.eras > 0 {
                    out.push(Action::OtherEra { session, server, tree });
                }
                if self.luck.failed_handshakes > 0 {
                    out.push(Action::Handshake { session, server, tree, works: false });
                }
            }
            if direct && self.luck.hangups > 0 && !of.stdin_closed {
                out.push(Action::HangUp { session, server, tree });
            }
        }
        if of.helper && (of.killed || of.terminated && config.polite_helpers) {
            out.push(Action::HelperEnds { session, server, tree });
        }
    }

    /// A timer of idleness begins again for as long as something holds the session, so there may be a bound on how often it fires.
    fn may_fire(&self, cell: &Cell) -> bool {
        let Some(looks) = self.luck.looks else { return true };
        let machine = cell.machine.as_ref().map(|machine| machine.get());
        let idles =
            machine.is_some_and(|it| it.machine.watches_idleness() && it.machine.fine_state() == "live");
        looks > 0 || !idles
    }

    /// Nothing is left to happen but bad luck.
    pub(crate) fn is_at_rest(&self, context: &Context<'_>) -> bool {
        if !self.mail.is_empty() || self.wrong.is_some() {
            return false;
        }
        let mut all = Vec::new();
        self.choices(context, &mut all);
        all.iter().all(|action| action.is_bad_luck())
    }
}

impl World {
    /// What happens, for people.
    pub(crate) fn words(&self, context: &Context<'_>, action: Action) -> String {
        match action {
            Action::Ask(number) => {
                let (client, ask) = context.asks[usize::from(number)];
                format!("client {client} asks (request {}): {ask:?}", number + 1)
            }
            Action::Vanish(number) => format!("the caller of request {} goes away", number + 1),
            Action::Deliver(lane) => {
                format!("session {}, {:?}: {:?} arrives", lane.session, lane.way, self.mail.first(lane))
            }
            other => format!("{other:?}"),
        }
    }
}
