//! The `session/open` of the shim.
use crate::cli::{Globals, RunArgs};
use crate::run::context::{Context, environment};
use crate::run::failure::Failure;
use mcpvisor_control::params::{Descriptor, Direct, IfOpen, ServerDefinition, SessionOpen};
use mcpvisor_control::{Lease, ServerName, Text};
use rustix::fs::{Mode, OFlags, open as open_file};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

/// What the descriptors of the open are, in the order in which they are sent.
const DESCRIPTORS: [Descriptor; 4] =
    [Descriptor::Stdin, Descriptor::Stdout, Descriptor::Stderr, Descriptor::Cwd];

/// The server's working directory, as a descriptor that says nothing about its path.
pub(crate) fn directory(args: &RunArgs) -> Result<OwnedFd, Failure> {
    let path = args.cwd.as_deref().unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_file(path, flags, Mode::empty()).map_err(|error| {
        Failure::own(format!("failed to open the working directory {}: {error}", path.display()))
            .with_help("name one that exists with --cwd")
    })
}

/// The request, without its descriptors.
///
/// `relayed`: the daemon passes the messages on. Else the server is born with the streams.
pub(crate) fn open(
    args: &RunArgs,
    globals: &Globals,
    context: &Context,
    relayed: bool,
) -> Result<SessionOpen, Failure> {
    let name =
        args.name.clone().unwrap_or_else(|| default_name(args.command.first().map(OsString::as_os_str)));
    let command = texts(args.command.iter().cloned())?;
    let given = Some(Direct { descriptors: DESCRIPTORS.to_vec() });
    let (direct, relay) = if relayed { (None, given) } else { (given, None) };
    Ok(SessionOpen {
        key: args.key.clone(),
        user: globals.user,
        servers: vec![ServerDefinition::new(name, command)],
        environment: texts(environment(std::env::vars_os(), &args.env))?,
        umask: context.umask,
        resource_limits: context.limits.clone(),
        nice: context.nice,
        ignored_signals: context.ignored_signals.clone(),
        lease: Lease::Connection,
        // The streams of another shim can't be joined.
        if_open: IfOpen::Fail,
        deadline_ms: globals.timeout.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        direct,
        relay,
        ..SessionOpen::default()
    })
}

fn texts(all: impl IntoIterator<Item = OsString>) -> Result<Vec<Text>, Failure> {
    all.into_iter().map(Text::new).collect::<Result<_, _>>().map_err(|error| Failure::own(error.to_string()))
}

/// The command's file name, as far as it is fit to name a server; `main` where nothing of it is.
fn default_name(command: Option<&OsStr>) -> ServerName {
    let file = command.and_then(|command| Path::new(command).file_name()).unwrap_or_default();
    let cleaned: String = file
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(64)
        .collect();
    ServerName::new(cleaned)
        .or_else(|_| ServerName::new("main"))
        .expect("main has the form of a server's name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_after_its_program() {
        let name = |command: &str| default_name(Some(OsStr::new(command))).to_string();
        assert_eq!(name("/usr/bin/npx"), "npx");
        assert_eq!(name("./my server.py"), "my-server-py");
        assert_eq!(name(".hidden"), "hidden");
        assert_eq!(name("/"), "main");
        assert_eq!(name("äö"), "main");
        assert_eq!(name(&"x".repeat(100)).len(), 64);
        assert_eq!(default_name(None).to_string(), "main");
    }
}
