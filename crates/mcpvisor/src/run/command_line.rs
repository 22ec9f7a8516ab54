//! The usual command lines of `run`, understood without building the whole command line's grammar.
//!
//! A client starts the shim once for each server, some of them twice, and waits for it. Building the grammar of all
//! commands would be a good part of that time. What is not quite usual, and whatever is wrong, is left to the grammar:
//! a test holds the two against each other.
use crate::cli::{Globals, RunArgs};
use mcpvisor_control::{ServerName, SessionKey};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `mcpvisor [OPTION…] run [OPTION…] [--] COMMAND…`, with the program's own name first; none where it is anything else.
pub(crate) fn usual(args: &[OsString]) -> Option<(RunArgs, Globals)> {
    let mut globals = Globals::default();
    let mut words = args.iter().skip(1);
    loop {
        let word = words.next()?;
        if word == "run" {
            break;
        }
        global(word, &mut words, &mut globals)?;
    }
    let mut run =
        RunArgs { key: None, name: None, env: Vec::new(), cwd: None, relay: false, command: Vec::new() };
    loop {
        let word = words.next()?;
        match word.as_bytes() {
            b"--" => {
                run.command = words.cloned().collect();
                break;
            }
            b"--key" if run.key.is_none() => {
                run.key = Some(SessionKey::new(value(&mut words)?.to_str()?).ok()?);
            }
            b"--name" if run.name.is_none() => {
                run.name = Some(ServerName::new(value(&mut words)?.to_str()?).ok()?);
            }
            b"--cwd" if run.cwd.is_none() => run.cwd = Some(PathBuf::from(value(&mut words)?)),
            b"--relay" if !run.relay => run.relay = true,
            b"--env" => run.env.push(variable(value(&mut words)?)?),
            [b'-', ..] => global(word, &mut words, &mut globals)?,
            _ => {
                run.command = std::iter::once(word).chain(words).cloned().collect();
                // What a second mark means is for the grammar to say.
                if run.command.iter().any(|word| word == "--") {
                    return None;
                }
                break;
            }
        }
    }
    let contradiction = globals.private && globals.socket.is_some();
    (!run.command.is_empty() && !contradiction).then_some((run, globals))
}

/// Whether a command line, right or wrong, is one of `run`.
pub(crate) fn is_run(args: &[OsString]) -> bool {
    let mut words = args.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--socket" | b"--containment" | b"--color" | b"--user" | b"--timeout" => drop(words.next()),
            [b'-', ..] => {}
            word => return word == b"run",
        }
    }
    false
}

fn global<'a>(
    word: &OsStr,
    words: &mut impl Iterator<Item = &'a OsString>,
    globals: &mut Globals,
) -> Option<()> {
    match word.as_bytes() {
        b"--private" if !globals.private => globals.private = true,
        b"--socket" if globals.socket.is_none() => globals.socket = Some(PathBuf::from(value(words)?)),
        b"--containment" if globals.containment.is_none() => {
            let kind = value(words)?.to_str()?;
            if !["auto", "cgroup", "keeper"].contains(&kind) {
                return None;
            }
            globals.containment = Some(kind.to_owned());
        }
        _ => return None,
    }
    Some(())
}

/// An option's value: what could be an option itself is left to the grammar.
fn value<'a>(words: &mut impl Iterator<Item = &'a OsString>) -> Option<&'a OsString> {
    words.next().filter(|value| !matches!(value.as_bytes(), [] | [b'-', ..]))
}

fn variable(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    let part = |bytes| OsStr::from_bytes(bytes).to_os_string();
    Some((part(&bytes[..at]), part(&bytes[at + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("mcpvisor").chain(line.split(' ')).map(OsString::from).collect()
    }

    #[test]
    fn what_is_understood_here_means_the_same_to_the_grammar() {
        for line in [
            "run -- npx -y pkg --json",
            "run npx -y --key b",
            "run --key a --name b --env A=1 --env B= --env A=x=y --cwd /tmp -- x",
            "--socket /s run -- x",
            "run --relay -- x",
            "run --key a --relay x --relay",
            "run --socket /s --key a:b -- x -- y --",
            "--private --containment keeper run -- run -- x",
            "--containment auto run --private run",
        ] {
            let (run, globals) = usual(&words(line)).unwrap_or_else(|| panic!("not understood: {line}"));
            let cli = Cli::try_parse_from(words(line)).unwrap();
            let Command::Run(other) = cli.command else { panic!("{line}") };
            assert_eq!(format!("{run:?} {globals:?}"), format!("{other:?} {:?}", cli.globals), "{line}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_known_to_be_one_of_run() {
        for line in ["run", "run --bogus", "--json run", "--socket /s --private run --key", "--color=x run"] {
            assert!(is_run(&words(line)), "{line}");
        }
        for line in ["", "list run", "--socket run", "open run -- run", "--json"] {
            assert!(!is_run(&words(line)), "{line}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_grammar() {
        for line in [
            "",
            "run",
            "run --",
            "run --help",
            "run --key -- x",
            "run --key a/b -- x",
            "run --key a --key b -- x",
            "run --relay --relay -- x",
            "run --name a.b -- x",
            "run --env A -- x",
            "run --env =A -- x",
            "run --key=a -- x",
            "run --json -- x",
            "run --timeout 5s -- x",
            "run x -- y",
            "--socket /s --private run -- x",
            "--containment jail run -- x",
            "list",
            "--json run -- x",
            "open run -- x",
        ] {
            assert!(usual(&words(line)).is_none(), "{line}");
        }
    }
}
