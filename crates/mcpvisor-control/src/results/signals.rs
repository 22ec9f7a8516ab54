//! Names of signals.
use super::certificate::Exit;

/// Numbers and names, as Linux has them on the architectures that we build for (all but Alpha, MIPS and SPARC).
const NAMES: &[(i32, &str)] = &[
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (16, "STKFLT"),
    (17, "CHLD"),
    (18, "CONT"),
    (19, "STOP"),
    (20, "TSTP"),
    (21, "TTIN"),
    (22, "TTOU"),
    (23, "URG"),
    (24, "XCPU"),
    (25, "XFSZ"),
    (26, "VTALRM"),
    (27, "PROF"),
    (28, "WINCH"),
    (29, "IO"),
    (30, "PWR"),
    (31, "SYS"),
];

impl Exit {
    /// The end by a signal of this number.
    #[must_use]
    pub fn from_signal(number: i32) -> Self {
        let name = NAMES.iter().find(|(known, _)| *known == number);
        Self::Signal(name.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned()))
    }

    /// The status that a shell would have: the code, or 128 and the signal's number. None for a signal that is not known.
    #[must_use]
    pub fn shell_status(&self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(*code),
            Self::Signal(name) => {
                let known = NAMES.iter().find(|(_, known)| known == name).map(|(number, _)| *number);
                known.or_else(|| name.parse().ok()).map(|number| 128 + number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_name_and_come_back_as_a_shells_status() {
        assert_eq!(Exit::from_signal(9), Exit::Signal("KILL".to_owned()));
        assert_eq!(Exit::from_signal(34), Exit::Signal("34".to_owned()));
        for number in 1..=64 {
            assert_eq!(Exit::from_signal(number).shell_status(), Some(128 + number));
        }
        assert_eq!(Exit::Code(3).shell_status(), Some(3));
        assert_eq!(Exit::Signal("NONSENSE".to_owned()).shell_status(), None);
    }
}
