//! The stop command: once for each incarnation, with a budget of its own, reaped before the end, whatever comes in which order.
use super::*;
use std::collections::BTreeSet;

const START: Duration = Duration::from_millis(10);
const COMMAND: Duration = Duration::from_secs(4);
const KILL_WAIT: Duration = Duration::from_secs(5);
const ONE: Incarnation = Incarnation(1);

/// A server with its processes and its command, as the kernel would have them.
#[derive(Clone)]
struct World {
    server: Server,
    now: Moment,
    launched: bool,
    /// Its main process lives; its tree does.
    main: bool,
    tree: bool,
    killed: bool,
    /// Since when the command runs, and whether it does still.
    begun: Option<Moment>,
    runs: bool,
    released: bool,
    /// Its end was urged to the kill.
    urged: bool,
    /// What has happened, for who reads a failure.
    past: Vec<&'static str>,
}

impl World {
    fn new(mode: Mode) -> Self {
        let mut server = idle(mode);
        server.config.stop_command = Some(COMMAND);
        server.config.restart = Restart::Temporary;
        let mut world = Self {
            server,
            now: Moment(0),
            launched: false,
            main: false,
            tree: false,
            killed: false,
            begun: None,
            runs: false,
            released: false,
            urged: false,
            past: Vec::new(),
        };
        world.step("start", ServerEvent::Start);
        world
    }

    fn step(&mut self, name: &'static str, event: ServerEvent) {
        self.past.push(name);
        self.urged |= name == "urge" && matches!(self.server.phase, Phase::Ending(_));
        let effects = self.server.step(self.now, event);
        for effect in effects {
            self.run(effect, event);
        }
    }

    fn run(&mut self, effect: ServerEffect, event: ServerEvent) {
        let past = &self.past;
        match effect {
            ServerEffect::StopCommand { .. } => {
                assert!(self.begun.is_none(), "G15: the command is run again: {past:?}");
                assert!(self.launched, "G15: nothing was ever started: {past:?}");
                assert!(!self.urged, "G35: the third signal skips it: {past:?}");
                (self.begun, self.runs) = (Some(self.now), true);
            }
            ServerEffect::KillCommand { .. } => {
                let begun = self.begun.expect("G15: a command is killed that was not run");
                let whole = self.now.since(begun) >= COMMAND || event == ServerEvent::RetryKill || self.urged;
                assert!(whole, "G16: the command has not had its budget: {past:?}");
            }
            ServerEffect::Kill { .. } => self.killed = true,
            ServerEffect::Release { .. } => {
                assert!(!self.tree, "G12: its tree is left: {past:?}");
                assert!(!self.runs, "G12: its command is left: {past:?}");
                let run = self.begun.is_some() || !self.launched || self.urged;
                assert!(run, "G15: the command was not run: {past:?}");
                self.released = true;
            }
            _ => {}
        }
    }

    /// Everything that may come next.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut with = |name, event, change: fn(&mut Self)| {
            let mut world = self.clone();
            world.now = world.now.after(START);
            change(&mut world);
            world.step(name, event);
            all.push(world);
        };
        if !self.launched && !self.released {
            with("launched", ServerEvent::Launched { incarnation: ONE }, |world| {
                (world.launched, world.main, world.tree) = (true, true, true);
            });
        }
        if self.main {
            let exited = ServerEvent::MainExited { incarnation: ONE, normal: true, hung_up: false };
            with("exited", exited, |world| world.main = false);
        }
        if self.tree && !self.main {
            with("empty", ServerEvent::ScopeEmpty { incarnation: ONE }, |world| world.tree = false);
        }
        if self.runs {
            with("command ended", ServerEvent::CommandEnded { incarnation: ONE }, |world| world.runs = false);
        }
        with("stop", ServerEvent::Stop { term_first: false }, |_| {});
        with("stop, term first", ServerEvent::Stop { term_first: true }, |_| {});
        with("urge", ServerEvent::Urge { urgency: Urgency::Kill }, |_| {});
        with("retry", ServerEvent::RetryKill, |_| {});
        if let Some(until) = self.server.next_timeout() {
            let mut world = self.clone();
            world.now = world.now.max(until);
            world.step("timeout", ServerEvent::Timeout);
            all.push(world);
        }
        all
    }
}

/// In every order of what can come, to some depth; and each way that the command can take is taken.
///
/// Seen to fail, with `G12: its command is left`, where `emptied` did not wait for a command that runs; and with `G15: the command is run
/// again`, where it was not written down that it was run.
#[test]
fn g15_g16_a_stop_command_runs_once_and_is_reaped_in_every_order() {
    for mode in [Mode::Shared, Mode::Exclusive, Mode::Direct] {
        let (mut worlds, mut seen, mut ways) = (vec![World::new(mode)], BTreeSet::new(), BTreeSet::new());
        for _ in 0..12 {
            let mut next = Vec::new();
            for before in &worlds {
                for world in before.next() {
                    ways.insert((before.server.fine_state(), world.server.fine_state()));
                    if world.server.fine_state() == "kill" && before.server.fine_state() == "command" {
                        let until = world.server.next_timeout();
                        assert_eq!(until, Some(world.now.after(KILL_WAIT)), "G16: {:?}", world.past);
                    }
                    // Times matter to budgets alone: what differs in them only is the same.
                    let seen_as = (
                        world.server.fine_state(),
                        (world.launched, world.main, world.tree, world.killed, world.runs, world.released),
                        (world.server.stage(), world.begun.is_some(), world.urged),
                        format!("{:?}", world.server.phase).split(" until").next().map(str::to_owned),
                    );
                    if seen.insert(seen_as) {
                        next.push(world);
                    }
                }
            }
            worlds = next;
        }
        for way in [
            ("term", "command"),
            ("stdin", "kill"),
            ("command", "kill"),
            ("command", "stopped"),
            ("kill", "stopped"),
            ("stuck", "stopped"),
        ] {
            let direct = mode == Mode::Direct && way.0 == "stdin";
            assert!(direct || ways.contains(&way), "{way:?} of {mode:?}: {ways:?}");
        }
    }
}

/// G35: a third signal skips to the kill: a stop command that runs is cut in that step, and one that has not begun does not, also where the launch
/// that is to be undone comes after it. Without it the command had the whole of its time.
#[test]
fn g35_the_third_signal_skips_the_stop_command() {
    let kill = ServerEvent::Urge { urgency: Urgency::Kill };
    let ends = [ServerEffect::KillCommand { incarnation: ONE }, ServerEffect::Kill { incarnation: ONE }];
    let with_command = || {
        let mut server = server();
        server.config.stop_command = Some(COMMAND);
        let _ = server.step(Moment(0), ServerEvent::Stop { term_first: true });
        server
    };
    let mut runs = with_command();
    let at = runs.next_timeout().expect("SIGTERM has its grace");
    assert_eq!(runs.step(at, ServerEvent::Timeout), [ServerEffect::StopCommand { incarnation: ONE }]);
    assert_eq!(runs.step(at, kill), ends);
    assert_eq!(runs.next_timeout(), Some(at.after(KILL_WAIT)));
    assert_eq!(runs.step(at, kill), []);
    let mut unrun = with_command();
    assert_eq!(unrun.step(Moment(1), kill), [ServerEffect::Kill { incarnation: ONE }]);
    let effects = unrun.step(Moment(2), ServerEvent::ScopeEmpty { incarnation: ONE });
    assert_eq!(
        effects,
        [ServerEffect::Release { incarnation: ONE }, ServerEffect::Report(ServerReport::Stopped)]
    );
    let mut launching = idle(Mode::Shared);
    launching.config.stop_command = Some(COMMAND);
    for event in [ServerEvent::Start, ServerEvent::Stop { term_first: true }, kill] {
        let _ = launching.step(Moment(0), event);
    }
    let effects = launching.step(Moment(1), ServerEvent::Launched { incarnation: ONE });
    assert_eq!(effects, [ServerEffect::Kill { incarnation: ONE }]);
}

/// A server without one has no such rung.
#[test]
fn without_a_stop_command_nothing_waits_for_one() {
    let mut server = server();
    let _ = server.step(Moment(0), ServerEvent::Stop { term_first: true });
    assert_eq!(server.step(Moment(1), ServerEvent::CommandEnded { incarnation: ONE }), []);
    let effects = server.step(Moment(2), ServerEvent::ScopeEmpty { incarnation: ONE });
    assert_eq!(
        effects,
        [ServerEffect::Release { incarnation: ONE }, ServerEffect::Report(ServerReport::Stopped)]
    );
}
