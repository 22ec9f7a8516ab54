//! What the kernel has of one launch.

/// How far the stop command of one launch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Command {
    Unrun,
    Runs,
    Ended,
}

/// One launch, from its order to its release: a main process, and perhaps a helper that left its process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tree {
    pub(crate) incarnation: u8,
    /// The launch is not answered.
    pub(crate) unborn: bool,
    pub(crate) main: bool,
    pub(crate) helper: bool,
    /// What was done to what lives.
    pub(crate) stdin_closed: bool,
    pub(crate) terminated: bool,
    pub(crate) killed: bool,
    /// A kill came before the birth: the launch may fail for it.
    pub(crate) killed_early: bool,
    /// A handshake is being spoken.
    pub(crate) asked: bool,
    /// Its client has closed its end.
    pub(crate) hung_up: bool,
    /// There was a process.
    pub(crate) was_born: bool,
    pub(crate) command: Command,
}

impl Tree {
    pub(crate) fn new(incarnation: u8) -> Self {
        Self {
            incarnation,
            unborn: true,
            main: false,
            helper: false,
            stdin_closed: false,
            terminated: false,
            killed: false,
            killed_early: false,
            asked: false,
            hung_up: false,
            was_born: false,
            command: Command::Unrun,
        }
    }

    pub(crate) fn lives(&self) -> bool {
        self.main || self.helper
    }

    /// Nothing lives in its scope, and nothing can still be born there.
    pub(crate) fn is_empty(&self) -> bool {
        !self.lives() && !self.unborn
    }

    /// The same, and its stop command does not run.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_empty() && self.command != Command::Runs
    }

    pub(crate) fn kill(&mut self) {
        if self.unborn {
            self.killed_early = true;
        } else {
            self.killed = true;
        }
    }
}
