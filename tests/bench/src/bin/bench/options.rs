//! The command line.
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const USAGE: &str =
    "usage: bench [SUITE…] [--runs N] [--calls N] [--pin CPU] [--containment cgroup|keeper]
             [--mcpvisor FILE] [--server FILE] [--json FILE]
  SUITE            open, close-ack, call, start, relay, idle, crowd, growth; all of them by default
  --runs N         interleaved runs of each suite (500)
  --calls N        calls in each block of `call` (20)
  --pin CPU        keeps everything on one processor: shows what the code costs, and repeats best
  --containment C  of the daemon (its own choice)
  --mcpvisor FILE  the program to measure (mcpvisor beside this program)
  --server FILE    the server (bench-server beside this program)
  --json FILE      writes all figures there too";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    Open,
    CloseAck,
    Call,
    Start,
    Relay,
    Idle,
    Crowd,
    Growth,
}

impl Suite {
    const ALL: [Self; 8] = [
        Self::Open,
        Self::CloseAck,
        Self::Call,
        Self::Start,
        Self::Relay,
        Self::Idle,
        Self::Crowd,
        Self::Growth,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::CloseAck => "close-ack",
            Self::Call => "call",
            Self::Start => "start",
            Self::Relay => "relay",
            Self::Idle => "idle",
            Self::Crowd => "crowd",
            Self::Growth => "growth",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) suites: Vec<Suite>,
    pub(crate) runs: usize,
    pub(crate) calls: usize,
    pub(crate) pin: Option<usize>,
    pub(crate) containment: Option<String>,
    pub(crate) mcpvisor: PathBuf,
    pub(crate) server: PathBuf,
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// How long any one answer may take before the run is given up.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let beside = |name: &str| {
            let own = std::env::current_exe().unwrap_or_default();
            own.with_file_name(name)
        };
        let mut options = Self {
            suites: Vec::new(),
            runs: 500,
            calls: 20,
            pin: None,
            containment: None,
            mcpvisor: beside("mcpvisor"),
            server: beside("bench-server"),
            json: None,
        };
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            if let Some(suite) = Suite::ALL.into_iter().find(|suite| suite.name() == arg) {
                options.suites.push(suite);
                continue;
            }
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            let number = |text: String| text.parse::<usize>().map_err(|_| format!("{text} is not a number"));
            match arg.as_str() {
                "--runs" => options.runs = number(value()?)?.max(1),
                "--calls" => options.calls = number(value()?)?.max(1),
                "--pin" => options.pin = Some(number(value()?)?),
                "--containment" => options.containment = Some(value()?),
                "--mcpvisor" => options.mcpvisor = value()?.into(),
                "--server" => options.server = value()?.into(),
                "--json" => options.json = Some(value()?.into()),
                _ => return Err(format!("unknown argument {arg}")),
            }
        }
        if options.suites.is_empty() {
            options.suites = Suite::ALL.to_vec();
        }
        for program in [&mut options.mcpvisor, &mut options.server] {
            *program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_and_values() {
        let args = ["close-ack", "--runs", "7", "--pin", "1", "--mcpvisor", "/bin/sh", "--server", "/bin/sh"];
        let options = Options::parse(args.into_iter().map(str::to_owned)).unwrap();
        assert_eq!(options.suites, [Suite::CloseAck]);
        assert_eq!((options.runs, options.pin), (7, Some(1)));
        assert!(Options::parse(["--runs".to_owned()].into_iter()).is_err());
        assert!(Options::parse(["--nonsense".to_owned()].into_iter()).is_err());
    }
}
