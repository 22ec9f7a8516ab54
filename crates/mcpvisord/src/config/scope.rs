//! Whose process a server is.
use super::Scope;
use super::walk::Section;
use std::time::Duration;

/// How long a server that sessions share stays after the last of them, where it is not said.
pub(super) const LINGER: Duration = Duration::from_secs(30);

/// What a server has that the daemon starts, and one that someone else runs has not.
const OF_A_PROCESS: [&str; 7] =
    ["command", "args", "env", "cwd", "stop_command", "stop_command_timeout", "limits"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Session,
    Daemon,
    External,
}

/// None where something of it is wrong, which has been told then.
pub(super) fn scope(section: &Section<'_>) -> Option<Scope> {
    const WORDS: [(&str, Word); 3] =
        [("session", Word::Session), ("daemon", Word::Daemon), ("external", Word::External)];
    let word = match section.get("scope") {
        None => Word::Session,
        Some(item) => item.word(&WORDS)?,
    };
    let (linger, socket) = (section.get("linger"), section.get("socket"));
    if let Some(item) = linger.as_ref().filter(|_| word != Word::Daemon) {
        item.wrong("the server ends with its session", Some("it is for scope = \"daemon\""));
    }
    if let Some(item) = socket.as_ref().filter(|_| word != Word::External) {
        item.wrong("the server is started by the daemon", Some("it is for scope = \"external\""));
    }
    if let Some(item) =
        section.get("mode").filter(|item| word != Word::Session && item.text() == Some("exclusive"))
    {
        item.wrong("an exclusive server is one session's alone", Some("leave out its mode, or its scope"));
    }
    match word {
        Word::Session => Some(Scope::Session),
        Word::Daemon => Some(Scope::Daemon { linger: linger.map_or(Some(LINGER), |item| item.duration())? }),
        Word::External => {
            for item in OF_A_PROCESS.iter().filter_map(|key| section.get(key)) {
                item.wrong(
                    "the daemon does not start the server",
                    Some("leave it out: the server is reached by its socket"),
                );
            }
            let Some(item) = socket else {
                section.missing(
                    "socket",
                    "name the socket that the server listens on: socket = \"/run/server.sock\"",
                );
                return None;
            };
            let socket = item.template()?;
            if socket.as_literal().is_some_and(|path| !path.starts_with('/')) {
                item.wrong("a socket is an absolute path", None);
            }
            Some(Scope::External { socket })
        }
    }
}
