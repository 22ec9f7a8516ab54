//! The daemon's command line.
use crate::config::Containment;
use crate::log::LogFormat;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The mcpvisor daemon: sessions of MCP servers that never leak a process.
#[derive(Debug, Default, PartialEq, Eq, Parser)]
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

/// An option's value: what could be an option itself, or is nothing, is left to the grammar.
fn value<'a>(words: &mut impl Iterator<Item = &'a OsString>) -> Option<&'a OsString> {
    words.next().filter(|word| !word.is_empty() && !word.as_encoded_bytes().starts_with(b"-"))
}

impl Args {
    /// Parses what follows the program's name and `prefix`. The error is clap's own, help and version among them.
    pub(crate) fn parse(prefix: &[&str], args: Vec<OsString>) -> Result<Self, clap::Error> {
        if let Some(usual) = Self::usual(&args) {
            return Ok(usual);
        }
        let name =
            if prefix.is_empty() { "mcpvisord".to_owned() } else { format!("mcpvisor {}", prefix.join(" ")) };
        let mut command = Self::command().bin_name(&name);
        let matches = command.try_get_matches_from_mut(std::iter::once(OsString::from(name)).chain(args))?;
        Self::from_arg_matches(&matches)
    }

    /// The usual command lines, understood without building the grammar: that would be a fourteenth of the instructions of the daemon's start,
    /// and its code would be part of the memory of a daemon that rests. What is not quite usual, and whatever is wrong, is left to the grammar:
    /// a test holds the two against each other.
    fn usual(args: &[OsString]) -> Option<Self> {
        let (mut usual, mut form) = (Self::default(), None);
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.to_str()? {
                "--socket" if usual.socket.is_none() => usual.socket = Some(value(&mut words)?.into()),
                "--config" if usual.config.is_none() => usual.config = Some(value(&mut words)?.into()),
                "--containment" if usual.containment.is_none() => {
                    usual.containment = Some(containment(value(&mut words)?.to_str()?).ok()?);
                }
                "--log-format" if form.is_none() => {
                    form = Some(LogFormat::from_str(value(&mut words)?.to_str()?, false).ok()?);
                }
                "--check-config" if !usual.check_config => usual.check_config = true,
                "--private" if !usual.private => usual.private = true,
                _ => return None,
            }
        }
        usual.log_format = form.unwrap_or_default();
        let contradiction =
            usual.private && (usual.socket.is_some() || usual.config.is_some() || usual.check_config);
        (!contradiction).then_some(usual)
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
    fn the_usual_is_understood_as_the_grammar_does() {
        let words = ["--socket", "--config", "--log-format", "--containment", "--private", "--check-config"];
        let values = ["", "/s", "json", "keeper", "-x", "--socket"];
        let mut lines: Vec<Vec<&str>> = vec![vec![]];
        for first in words {
            lines.push(vec![first]);
            for second in words.iter().chain(&values) {
                lines.push(vec![first, second]);
                lines.extend(words.iter().chain(&values).map(|third| vec![first, *second, *third]));
            }
            for second in words {
                for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
                    lines.push(vec![first, a, second, b]);
                }
            }
        }
        let mut understood = 0;
        for line in lines {
            let args: Vec<OsString> = line.iter().map(OsString::from).collect();
            let Some(usual) = Args::usual(&args) else { continue };
            understood += 1;
            let whole = Args::try_parse_from(std::iter::once(OsString::from("mcpvisord")).chain(args));
            assert_eq!(whole.ok(), Some(usual), "{line:?}");
        }
        assert!(understood > 50, "{understood}");
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
