//! Servers of a profile: a clean environment, variables expanded.
use super::invalid;
use crate::config::expand::Expansion;
use crate::config::{self, BreakerOf, Config, Profile, Server, Template};
use crate::users::{self, User};
use mcpvisor_control::{ErrorKind, ErrorObject};
use mcpvisor_process::Credentials;
use mcpvisor_supervisor::{Scope, ServerSpec, StopCommand};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where the daemon itself has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What `[daemon]` says of every server.
#[derive(Debug, Clone, Copy)]
struct Given {
    max_line: usize,
    breaker: bool,
}

/// The servers of a profile.
pub(super) async fn specs(
    config: &Config,
    name: &str,
    profile: &Profile,
    args: &BTreeMap<String, String>,
    credentials: Option<Credentials>,
) -> Result<Vec<ServerSpec>, ErrorObject> {
    let known = profile.arguments();
    if let Some(unknown) = args.keys().find(|arg| !known.contains(arg.as_str())) {
        let known: Vec<&str> = known.into_iter().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(invalid(format!("profile {name} has no argument `{unknown}`"))
            .with("help", format!("it has these: {known}")));
    }
    let breaker = config.daemon.breaker.of != BreakerOf::Nobody;
    let (given, patience) = (Given { max_line: config.daemon.max_line, breaker }, profile.timeouts.start);
    let (name, profile, args) = (name.to_owned(), profile.clone(), args.clone());
    let work = move || expand(&name, &profile, &args, credentials.as_ref(), given);
    // Files, and the home folder, may lie on a mount that is dead: that holds up this open only, and not for ever.
    match tokio::time::timeout(patience, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(specs)) => specs,
        Ok(Err(error)) => Err(ErrorObject::new(
            ErrorKind::Internal,
            format!("the expansion of the profile failed: {error}"),
        )),
        Err(_) => Err(ErrorObject::new(
            ErrorKind::StartTimeout,
            "the files that the profile names could not be read in the time that its servers have to start",
        )),
    }
}

fn expand(
    name: &str,
    profile: &Profile,
    args: &BTreeMap<String, String>,
    credentials: Option<&Credentials>,
    given: Given,
) -> Result<Vec<ServerSpec>, ErrorObject> {
    let credentials_directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let expansion =
        Expansion { args, env: |name| std::env::var_os(name), credentials: credentials_directory };
    let who = Who::of(credentials);
    profile.servers.iter().map(|server| spec(name, server, &expansion, &who, credentials, given)).collect()
}

fn spec(
    profile: &str,
    server: &Server,
    expansion: &Expansion<'_>,
    who: &Who,
    credentials: Option<&Credentials>,
    given: Given,
) -> Result<ServerSpec, ErrorObject> {
    let wrong = |error: String| invalid(format!("profile {profile}, server {}: {error}", server.name));
    let text = |template: &Template| expansion.expand(template).map_err(|error| wrong(error.to_string()));
    let program = server.command.as_ref().map(text).transpose()?.unwrap_or_default();
    let scope = match &server.scope {
        config::Scope::Session => Scope::Session,
        config::Scope::Daemon { linger } => Scope::Daemon { profile: profile.to_owned(), linger: *linger },
        config::Scope::External { socket } => {
            Scope::External { socket: PathBuf::from(OsStr::from_bytes(text(socket)?.as_bytes())) }
        }
    };
    if program.is_empty() && server.command.is_some() {
        return Err(wrong("the command is empty".into()));
    }
    if let Scope::External { socket } = &scope
        && !socket.is_absolute()
    {
        return Err(wrong(format!("the socket {} is not an absolute path", socket.display())));
    }
    let mut args = vec![program.clone()];
    for template in &server.args {
        args.push(text(template)?);
    }
    let mut environment = who.environment();
    for (name, template) in &server.env {
        environment.insert(name.into(), OsStr::from_bytes(text(template)?.as_bytes()).to_owned());
    }
    let cwd = match &server.cwd {
        Some(template) => PathBuf::from(OsStr::from_bytes(text(template)?.as_bytes())),
        None => who.home(),
    };
    if !cwd.is_absolute() {
        return Err(wrong(format!("the working directory {} is not an absolute path", cwd.display())));
    }
    Ok(ServerSpec {
        name: server.name.clone(),
        scope,
        program,
        args,
        env: environment.iter().filter_map(|(name, value)| entry(name, value)).collect(),
        cwd: Some(cwd),
        umask: None,
        limits: crate::limits::with_original(Vec::new()),
        nice: None,
        ignored_signals: Vec::new(),
        credentials: credentials.cloned(),
        no_new_privs: true,
        memory_max: server.memory,
        pids_max: server.processes,
        max_in_flight: server.max_in_flight,
        calls: server.timeouts.calls(server.max_queued),
        mode: server.mode,
        era: server.era,
        required: server.required,
        significant: server.significant,
        breaker: given.breaker,
        restart: server.restart.when,
        restart_intensity: server.restart.intensity,
        restart_period: server.restart.period,
        health: server.health,
        start: server.timeouts.start,
        stdin_grace: server.timeouts.stdin_grace,
        term_grace: server.timeouts.term_grace,
        stop_command: stop_command(server, text)?,
        kill_wait: server.timeouts.kill_wait,
        max_line: given.max_line,
    })
}

fn stop_command(
    server: &Server,
    text: impl Fn(&Template) -> Result<CString, ErrorObject>,
) -> Result<Option<StopCommand>, ErrorObject> {
    let words = server.stop_command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    Ok((!words.is_empty()).then_some(StopCommand { args: words, timeout: server.stop_command_timeout }))
}

/// `NAME=VALUE`; none where it holds a NUL.
pub(crate) fn entry(name: &OsStr, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}

/// What programs of the configuration get that run as the daemon does.
pub(crate) fn own_environment() -> BTreeMap<OsString, OsString> {
    Who::of(None).environment()
}

/// The user that the servers run as.
#[derive(Debug)]
struct Who {
    user: Option<User>,
    /// The daemon's own user: its environment knows better than the machine's files.
    own: bool,
}

impl Who {
    fn of(credentials: Option<&Credentials>) -> Self {
        let uid =
            credentials.map_or_else(|| rustix::process::geteuid().as_raw(), |credentials| credentials.uid);
        Self { user: users::user(uid), own: credentials.is_none() }
    }

    /// What every server of a profile gets.
    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let mut environment = BTreeMap::new();
        environment.insert("PATH".into(), std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()));
        if let Some(user) = &self.user {
            for (name, value) in
                [("HOME", &user.home), ("USER", &user.name), ("LOGNAME", &user.name), ("SHELL", &user.shell)]
            {
                environment.insert(name.into(), value.into());
            }
        }
        let ours = |name: &str| self.own && matches!(name, "HOME" | "USER" | "LOGNAME" | "SHELL");
        for (name, value) in std::env::vars_os() {
            let known = name.to_str().unwrap_or_default();
            if known.starts_with("LC_") || matches!(known, "LANG" | "TZ") || ours(known) {
                environment.insert(name, value);
            }
        }
        environment
    }

    /// The root of the file system where the user has no home folder.
    fn home(&self) -> PathBuf {
        let own = || std::env::var_os("HOME").filter(|_| self.own).map(PathBuf::from);
        let told = || self.user.as_ref().map(|user| PathBuf::from(&user.home));
        let is_folder = |path: &PathBuf| path.is_absolute() && path.is_dir();
        own().or_else(told).filter(is_folder).unwrap_or_else(|| PathBuf::from("/"))
    }
}
