//! Pretended processes.
use mcpvisor_lifecycle::{Incarnation, Moment};

/// How a program behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub(crate) launch: Launch,
    pub(crate) handshake: Handshake,
    pub(crate) obeys_stdin: bool,
    pub(crate) obeys_term: bool,
    /// False: stuck in the kernel, until it is let go.
    pub(crate) obeys_kill: bool,
    /// A setsid'd helper that only the kill of the scope ends.
    pub(crate) helper: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Launch {
    Works,
    Fails,
    /// Hangs until it is let go; a kill makes it fail.
    Hangs,
    /// Hangs until it is let go, whatever is done.
    HangsForGood,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Handshake {
    Works,
    Fails,
    Hangs,
}

/// A server that does as it is told.
pub(crate) const POLITE: Program = Program {
    launch: Launch::Works,
    handshake: Handshake::Works,
    obeys_stdin: true,
    obeys_term: true,
    obeys_kill: true,
    helper: false,
};

/// A server that ends by the kill of its scope alone.
pub(crate) const STUBBORN: Program =
    Program { obeys_stdin: false, obeys_term: false, helper: true, ..POLITE };

/// A server that nothing ends.
pub(crate) const IMMORTAL: Program = Program { obeys_kill: false, ..STUBBORN };

/// What was done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Signal {
    Stdin,
    Term,
    Kill,
}

/// One incarnation of a server, from its launch to its release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) incarnation: Incarnation,
    pub(crate) program: Program,
    pub(crate) answered: bool,
    pub(crate) main: bool,
    pub(crate) helper: bool,
    /// Direct mode: the client has closed its end.
    pub(crate) hung_up: bool,
    /// Its client's end came before its own.
    pub(crate) followed: bool,
    /// The reaper kills it on its own, whatever comes of the launch.
    pub(crate) reaped: bool,
    /// The first time that each was done.
    pub(crate) signals: Vec<(Signal, Moment)>,
}

/// What the kernel and the reaper tell of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Launched,
    LaunchFailed,
    MainExited {
        normal: bool,
    },
    /// Direct mode: the client's hang-up, with its last bytes read.
    InputEnded,
    Empty,
}

impl Process {
    pub(crate) fn launch(incarnation: Incarnation, program: Program) -> (Self, Vec<Told>) {
        let signals = Vec::new();
        let mut process = Self {
            incarnation,
            program,
            answered: false,
            main: false,
            helper: false,
            hung_up: false,
            followed: false,
            reaped: false,
            signals,
        };
        let told = match program.launch {
            Launch::Works => process.go(true),
            Launch::Fails => process.go(false),
            Launch::Hangs | Launch::HangsForGood => Vec::new(),
        };
        (process, told)
    }

    pub(crate) fn lives(&self) -> bool {
        self.main || self.helper
    }

    /// The launch goes on.
    pub(crate) fn go(&mut self, works: bool) -> Vec<Told> {
        if self.answered {
            return Vec::new();
        }
        let works = works && !self.reaped;
        self.answered = true;
        self.main = works;
        self.helper = works && self.program.helper;
        vec![if works { Told::Launched } else { Told::LaunchFailed }]
    }

    pub(crate) fn signal(&mut self, now: Moment, signal: Signal) -> Vec<Told> {
        if self.signals.iter().all(|(other, _)| *other != signal) {
            self.signals.push((signal, now));
        }
        match signal {
            Signal::Stdin if self.program.obeys_stdin => self.exit(true, false),
            Signal::Term if self.program.obeys_term => self.exit(false, false),
            Signal::Kill if !self.answered && self.program.launch == Launch::Hangs => self.go(false),
            Signal::Kill if self.program.obeys_kill => self.exit(false, true),
            _ => Vec::new(),
        }
    }

    /// The main process exits, with the helper or without it.
    pub(crate) fn exit(&mut self, normal: bool, whole: bool) -> Vec<Told> {
        let mut told = Vec::new();
        let lived = self.lives();
        if std::mem::take(&mut self.main) {
            self.followed = self.hung_up;
            told.push(Told::MainExited { normal });
        }
        if whole {
            self.helper = false;
        }
        if lived && !self.lives() {
            told.push(Told::Empty);
        }
        told
    }

    /// The client of a direct server goes, and the server with it, with a status, if it reads its input.
    pub(crate) fn hang_up(&mut self) -> Vec<Told> {
        if std::mem::replace(&mut self.hung_up, true) {
            return Vec::new();
        }
        let mut told = vec![Told::InputEnded];
        if self.program.obeys_stdin {
            told.extend(self.exit(false, false));
        }
        told
    }

    pub(crate) fn at(&self, signal: Signal) -> Option<Moment> {
        self.signals.iter().find(|(other, _)| *other == signal).map(|(_, at)| *at)
    }
}
