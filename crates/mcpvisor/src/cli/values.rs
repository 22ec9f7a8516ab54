//! Values as people write them.
use clap::builder::TypedValueParser;
use clap::{Arg, Command};
use mcpvisor_control::params::{Goal, IfClosing, IfOpen, Mode, OnIdle, Prefix};
use mcpvisor_control::{ServerName, SessionRef};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;
use std::time::Duration;

/// `500ms`, `30s`, `5m`, `4h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let millis = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a duration is a whole number with a unit: 500ms, 30s, 5m, 4h".to_owned()),
    };
    let total = text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    // Longer than anything can be waited for, and short enough that no sum of it overflows.
    const LONGEST: u64 = 100 * 366 * 24 * 3_600_000;
    match total {
        Some(total) if total <= LONGEST => Ok(Duration::from_millis(total)),
        _ => Err("the duration is empty or too long".to_owned()),
    }
}

/// A variable of the environment: `NAME=VALUE`, of any bytes.
#[derive(Clone)]
pub(super) struct AssignmentParser;

impl TypedValueParser for AssignmentParser {
    type Value = (OsString, OsString);
    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let named = |arg: &Arg| format!("invalid value {value:?} for '{arg}': ");
        assignment(value).map_err(|error| {
            let text = arg.map(named).unwrap_or_default() + &error + "\n";
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

fn assignment(text: &OsStr) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        None | Some(0) => Err("a variable is written NAME=VALUE".to_owned()),
        Some(at) => {
            let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Ok((part(&bytes[..at]), part(&bytes[at + 1..])))
        }
    }
}

/// `NAME=VALUE`, for labels and the arguments of profiles.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it is written NAME=VALUE".to_owned()),
    }
}

/// A server of `open --server`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerCommand {
    pub(crate) name: ServerName,
    pub(crate) words: Vec<String>,
}

/// `NAME=COMMANDLINE`, the latter split as a shell would.
pub(super) fn server_command(text: &str) -> Result<ServerCommand, String> {
    let (name, line) = text.split_once('=').ok_or("a server is written NAME=COMMANDLINE")?;
    let name = ServerName::new(name).map_err(|error| error.to_string())?;
    let words =
        shell_words::split(line).map_err(|error| format!("the command line can't be split: {error}"))?;
    if words.first().is_none_or(String::is_empty) {
        return Err("the command line names no program".to_owned());
    }
    Ok(ServerCommand { name, words })
}

pub(super) fn if_closing(text: &str) -> Result<IfClosing, String> {
    match text {
        "wait" => Ok(IfClosing::Wait),
        "fail" => Ok(IfClosing::Fail),
        _ => Err("it is wait or fail".to_owned()),
    }
}

pub(super) fn if_open(text: &str) -> Result<IfOpen, String> {
    match text {
        "join" => Ok(IfOpen::Join),
        "fail" => Ok(IfOpen::Fail),
        _ => Err("it is join or fail".to_owned()),
    }
}

pub(super) fn on_idle(text: &str) -> Result<OnIdle, String> {
    match text {
        "close" => Ok(OnIdle::Close),
        "park" => Ok(OnIdle::Park),
        _ => Err("it is close or park".to_owned()),
    }
}

pub(super) fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "shared" => Ok(Mode::Shared),
        "exclusive" => Ok(Mode::Exclusive),
        _ => Err("it is shared or exclusive".to_owned()),
    }
}

pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    match text {
        "on-conflict" => Ok(Prefix::OnConflict),
        "always" => Ok(Prefix::Always),
        "never" => Ok(Prefix::Never),
        _ => Err("it is on-conflict, always or never".to_owned()),
    }
}

pub(super) fn goal(text: &str) -> Result<Goal, String> {
    match text {
        "closed" => Ok(Goal::Closed),
        "ready" => Ok(Goal::Ready),
        _ => Err("it is closed or ready".to_owned()),
    }
}

/// `KEY[@GEN][/SERVER]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogTarget {
    pub(crate) session: SessionRef,
    pub(crate) server: Option<ServerName>,
}

impl FromStr for LogTarget {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (session, server) =
            text.split_once('/').map_or((text, None), |(key, server)| (key, Some(server)));
        Ok(Self {
            session: session.parse().map_err(|error: mcpvisor_control::BadName| error.to_string())?,
            server: server.map(ServerName::new).transpose().map_err(|error| error.to_string())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, millis) in
            [("500ms", 500), ("0s", 0), ("30s", 30_000), ("5m", 300_000), ("4h", 14_400_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "s", "-1s", "1.5s", "5 s", "5d", "99999999999999999999s", "9999999999h", "5ü"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_variable_may_have_any_bytes() {
        let odd = OsString::from_vec(b"A=\xff=b".to_vec());
        assert_eq!(assignment(&odd).unwrap(), ("A".into(), OsString::from_vec(b"\xff=b".to_vec())));
        assert!(assignment(OsStr::new("=x")).is_err());
        assert!(assignment(OsStr::new("x")).is_err());
    }

    #[test]
    fn a_command_line_is_split_as_a_shell_would() {
        let server = server_command("files=npx -y 'a b' \"c=d\"").unwrap();
        assert_eq!(server.name.as_str(), "files");
        assert_eq!(server.words, ["npx", "-y", "a b", "c=d"]);
        for bad in ["files", "a/b=x", "files=", "files=  ", "files=''", "files='x"] {
            assert!(server_command(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_log_target_may_name_a_server() {
        let target: LogTarget = "a@3/files".parse().unwrap();
        assert_eq!((target.session.generation, target.server.unwrap().as_str()), (Some(3), "files"));
        assert!("a".parse::<LogTarget>().unwrap().server.is_none());
        assert!("a/".parse::<LogTarget>().is_err());
    }
}
