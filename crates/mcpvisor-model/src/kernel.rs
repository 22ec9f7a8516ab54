//! What the kernel has of one launch.

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
        }
    }

    pub(crate) fn lives(&self) -> bool {
        self.main || self.helper
    }

    /// Nothing lives, and nothing can still be born.
    pub(crate) fn is_gone(&self) -> bool {
        !self.lives() && !self.unborn
    }

    pub(crate) fn kill(&mut self) {
        if self.unborn {
            self.killed_early = true;
        } else {
            self.killed = true;
        }
    }
}
