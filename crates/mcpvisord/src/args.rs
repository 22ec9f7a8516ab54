//! The daemon's command line.
use crate::config::Containment;
use crate::log::LogFormat;
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// The mcpvisor daemon: sessions of MCP servers that never leak a process.
#[derive(Debug, Parser)]
#[command(
    name = "mcpvisord",
    version,
    after_help = "Signals: SIGTERM drains and ends; a second one skips the drain, a third goes to the kill.\n\
    Exit status: 0 done; 1 failed; 2 usage; 8 processes were left that could not be killed."
)]
pub(crate) struct Args {
    /// Where to listen; else MCPVISOR_SOCKET, the user's runtime directory, or /run/mcpvisor
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The configuration; without it the defaults hold, unless there is one in the usual place
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Say whether the configuration is right, and do nothing else
    #[arg(long)]
    pub(crate) check_config: bool,
    /// The form of the records on stderr
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// What holds the sessions' processes, whatever the configuration says
    #[arg(long, value_name = "KIND", value_parser = containment)]
    pub(crate) containment: Option<Containment>,
    /// Serve the one connection on standard input, in the background, and end with it
    #[arg(long, hide = true, conflicts_with_all = ["socket", "config", "check_config"])]
    pub(crate) private: bool,
}

fn containment(text: &str) -> Result<Containment, String> {
    let known = Containment::WORDS.iter().find(|(word, _)| *word == text);
    known.map(|(_, value)| *value).ok_or_else(|| "it is one of auto, cgroup, keeper".to_owned())
}

impl Args {
    /// Parses what follows the program's name and `prefix`. The error is clap's own, help and version among them.
    pub(crate) fn parse(prefix: &[&str], args: Vec<OsString>) -> Result<Self, clap::Error> {
        let name =
            if prefix.is_empty() { "mcpvisord".to_owned() } else { format!("mcpvisor {}", prefix.join(" ")) };
        let mut command = Self::command().bin_name(&name);
        let matches = command.try_get_matches_from_mut(std::iter::once(OsString::from(name)).chain(args))?;
        Self::from_arg_matches(&matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::parse(&["daemon"], args.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
        let args = parse(&["--socket", "/s", "--log-format", "journal", "--containment", "keeper"]).unwrap();
        assert_eq!(args.socket, Some("/s".into()));
        assert_eq!(args.log_format, LogFormat::Journal);
        assert_eq!(args.containment, Some(Containment::Keeper));
    }

    #[test]
    fn usage_errors_end_with_2_and_help_with_0() {
        assert_eq!(parse(&["--sockte", "/s"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--containment", "box"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--private", "--socket", "/s"]).unwrap_err().exit_code(), 2);
        let help = parse(&["--help"]).unwrap_err();
        assert_eq!(help.exit_code(), 0);
        assert!(help.to_string().contains("mcpvisor daemon"));
    }
}
