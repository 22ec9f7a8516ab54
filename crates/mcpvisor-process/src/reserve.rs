//! Descriptors that are kept in reserve, so that a teardown never fails for the lack of one.
use std::fs::File;
use std::io;

/// A few spare descriptors. Used by one thread; what others open meanwhile may take one that is let go, hence several tries.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    spare: Vec<File>,
}

impl Reserve {
    const SIZE: usize = 4;

    pub(crate) fn new() -> io::Result<Self> {
        let spare = (0..Self::SIZE).map(|_| File::open("/dev/null")).collect::<Result<_, _>>()?;
        Ok(Self { spare })
    }

    /// Does what opens a descriptor, uses it and closes it again, if need be with one of the reserve.
    pub(crate) fn with<T>(&mut self, mut action: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut result = action();
        while result.as_ref().is_err_and(is_exhausted) && self.spare.pop().is_some() {
            result = action();
        }
        while self.spare.len() < Self::SIZE {
            match File::open("/dev/null") {
                Ok(file) => self.spare.push(file),
                Err(_) => break,
            }
        }
        result
    }
}

/// The error says that a table of descriptors is full: the process's or the machine's.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
