//! The daemon in the foreground, from its start to its end.
use crate::args::Args;
use crate::config::{Config, Containment, Profile, Source};
use crate::daemon::Daemon;
use crate::reload::Reloader;
use crate::rights::Rights;
use crate::signals::{Caught, Signal, Signals};
use crate::socket::Listening;
use crate::systemd::{self, Never};
use crate::{hooks, limits, log, server};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::Uid;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_process::{ContainmentKind, InstanceId, Options, Threads};
use mcpvisor_supervisor::{Supervisor, SupervisorConfig};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Something was left that could not be killed.
const QUARANTINED: u8 = 8;

/// How long the end waits for work that hangs in the kernel, such as the reading of a profile's file.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long hooks that wait or run have at the end, before they are killed.
const HOOK_GRACE: Duration = Duration::from_secs(5);

/// Why the daemon could not start.
#[derive(Debug)]
pub(crate) struct StartError {
    message: String,
    help: Option<String>,
}

impl StartError {
    pub(crate) fn new(what: &str, cause: impl Display) -> Self {
        Self { message: format!("failed to {what}: {cause}"), help: None }
    }

    /// Tells it on stderr.
    pub(crate) fn tell(&self) {
        eprintln!("mcpvisord: {}", self.message);
        if let Some(help) = &self.help {
            eprintln!("help: {help}");
        }
    }
}

/// `--check-config`.
pub(crate) fn check_config(args: &Args) -> ExitCode {
    let source = Source::new(args.config.clone());
    match source.load() {
        Ok(_) => {
            match source.path() {
                Some(path) => println!("{} is right", path.display()),
                None => println!("there is no configuration file: the defaults hold"),
            }
            ExitCode::SUCCESS
        }
        Err(report) => {
            eprintln!("{report}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until it is told to end. `prefix` is what makes this executable a daemon.
pub(crate) fn foreground(prefix: &[&str], args: &Args) -> ExitCode {
    let config = match Source::new(args.config.clone()).load() {
        Ok(config) => config,
        Err(report) => {
            eprintln!("{report}");
            return ExitCode::FAILURE;
        }
    };
    match run(prefix, args, config) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(QUARANTINED),
        Err(error) => {
            error.tell();
            ExitCode::FAILURE
        }
    }
}

/// The number of sessions that could not be ended.
fn run(prefix: &[&str], args: &Args, config: Config) -> Result<usize, StartError> {
    config.can_be_honoured().map_err(|(message, help)| StartError { message, help: Some(help) })?;
    let caught = Caught::register().map_err(|error| StartError::new("receive signals", error))?;
    let mut listening = Listening::open(args.socket.clone(), config.daemon.socket_mode)
        .map_err(|error| StartError { help: error.help.clone(), ..StartError::new("listen", error) })?;
    let (_log, log_level) = log::start(args.log_format, config.daemon.log_level)
        .map_err(|error| StartError::new("start the log's thread", error))?;
    limits::raise();
    let wanted = args.containment.unwrap_or(config.daemon.containment);
    let parts = Parts::start(prefix, wanted, Role::Serving { state: listening.state() })?;
    let limited = |profile: &Profile| {
        profile.servers.iter().any(|server| server.memory.is_some() || server.processes.is_some())
    };
    if parts.containment.kind() == ContainmentKind::Keeper && config.profiles.values().any(limited) {
        tracing::warn!(
            "limits of memory and processes are not kept: they need cgroups, and sessions are in keepers"
        );
    }
    let runtime = runtime()?;
    let config = Arc::new(config);
    let rights = parts.rights(config.daemon.allow_commands.clone(), false);
    let reloader = Reloader::new(Source::new(args.config.clone()), log_level);
    let (containment, instance) = (parts.containment.clone(), parts.instance.clone());
    let left = runtime.block_on(async {
        let signals = caught.into_signals().map_err(|error| StartError::new("receive signals", error))?;
        let (daemon, ended) = supervise(containment, config, rights, Some(reloader)).await?;
        let socket = listening.describe();
        tracing::info!(
            socket,
            instance = &*instance.0,
            containment = match parts.containment.kind() {
                ContainmentKind::Cgroup => "cgroup",
                ContainmentKind::Keeper => "keeper",
            },
            pid = std::process::id(),
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        let listener = server::listener(listening.take())
            .map_err(|error| StartError::new("listen on the socket", error))?;
        systemd::ready();
        let serve = server::serve(daemon.clone(), listener);
        let left = tokio::select! {
            left = serve => left,
            never = heed(&daemon, &signals, OnHangUp::Reload) => match never {},
            never = systemd::keep_told(&daemon) => match never {},
        };
        // The end of the sessions is told and answered; their hooks have a little time more, unless someone is in a hurry.
        tokio::select! {
            () = daemon.supervisor.end_hooks(HOOK_GRACE) => {}
            _ = signals.next() => daemon.supervisor.end_hooks(Duration::ZERO).await,
        }
        drop(ended);
        Ok(left)
    });
    failpoints::pass_thread(Gate::ShutdownRuntime);
    runtime.shutdown_timeout(PATIENCE);
    parts.threads.end();
    failpoints::pass_thread(Gate::ShutdownExit);
    if let Ok(left @ 1..) = left {
        tracing::error!(sessions = left, "sessions are quarantined: processes of them could not be killed");
    } else {
        tracing::info!("ended; nothing is left");
    }
    left
}

/// What a daemon is for.
pub(crate) enum Role {
    /// A socket. Its successors learn what it leaves from the folder `state`, where there is one.
    Serving { state: Option<PathBuf> },
    /// One client, whom it does not outlive: it writes nothing down.
    Private,
}

/// What lives outside of the runtime: started before it and ended after it.
pub(crate) struct Parts {
    pub(crate) threads: Threads,
    pub(crate) containment: mcpvisor_process::Containment,
    pub(crate) instance: InstanceId,
}

impl Parts {
    pub(crate) fn start(prefix: &[&str], wanted: Containment, role: Role) -> Result<Self, StartError> {
        failpoints::start().map_err(|error| StartError::new("take orders of a test", error))?;
        let instance = instance().map_err(|error| StartError::new("draw random numbers", error))?;
        // By this path it is this very program that becomes a keeper, even where its file was replaced since.
        let mut keeper_command = vec![OsString::from("/proc/self/exe")];
        keeper_command.extend(prefix.iter().map(OsString::from));
        keeper_command.push("keeper".into());
        let options = Options {
            instance: instance.clone(),
            containment: match wanted {
                Containment::Auto => None,
                Containment::Cgroup => Some(ContainmentKind::Cgroup),
                Containment::Keeper => Some(ContainmentKind::Keeper),
            },
            private: matches!(role, Role::Private),
            keeper_command,
            state: match role {
                Role::Serving { state } => state,
                Role::Private => None,
            },
        };
        let (threads, containment) =
            mcpvisor_process::start(options).map_err(|error| StartError::new("contain processes", error))?;
        Ok(Self { threads, containment, instance })
    }

    pub(crate) fn rights(&self, allow_commands: Vec<u32>, private: bool) -> Rights {
        Rights {
            daemon: rustix::process::geteuid().as_raw(),
            instance: self.instance.0.to_string(),
            allow_commands,
            private,
        }
    }
}

/// Sixteen random hexadecimal digits.
fn instance() -> Result<InstanceId, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(InstanceId(format!("{:016x}", u64::from_ne_bytes(bytes)).into()))
}

/// One thread: at rest it costs least, and what it does between two waits is short.
pub(crate) fn runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::new("start the runtime", error))
}

/// Starts the supervision tree, and watches for its end.
pub(crate) async fn supervise(
    containment: mcpvisor_process::Containment,
    config: Arc<Config>,
    rights: Rights,
    reloader: Option<Reloader>,
) -> Result<(Daemon, tokio::task::JoinHandle<()>), StartError> {
    let supervisor = Supervisor::start(
        SupervisorConfig {
            registry: config.registry(),
            kill_wait: config.timeouts.kill_wait,
            events: config.events(),
            user: Uid(rights.daemon),
        },
        containment,
    )
    .await
    .map_err(|error| StartError::new("start the supervision tree", error))?;
    supervisor.use_hooks(hooks::set(&config, &rights.instance));
    let (end, ended) = watch::channel(None);
    let finished = supervisor.clone();
    let watcher = tokio::spawn(async move {
        let left = finished.finished().await;
        failpoints::pass(Gate::ShutdownFinished).await;
        end.send_replace(Some(left));
        // The value must outlive whoever asks late.
        end.closed().await;
    });
    Ok((Daemon::new(supervisor, config, rights, reloader, ended), watcher))
}

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnHangUp {
    /// Reload the configuration.
    Reload,
    /// The same as SIGTERM: the terminal or the service that a private daemon served is gone.
    End,
}

/// Begins the end at the first signal, skips the drain at the second, goes to the kill at the third.
pub(crate) async fn heed(daemon: &Daemon, signals: &Signals, on_hang_up: OnHangUp) -> Never {
    let mut next = Urgency::Drain;
    let mut reloads = JoinSet::new();
    loop {
        match signals.next().await {
            Ok(Signal::HangUp) if on_hang_up == OnHangUp::Reload => {
                while reloads.try_join_next().is_some() {}
                // One that waits for its turn reads what is there then: it does for those that come meanwhile.
                if reloads.len() < 2 {
                    let daemon = daemon.clone();
                    reloads.spawn(async move { daemon.reload().await.is_ok() });
                }
            }
            Ok(_) => {
                tracing::info!(urgency = ?next, "told by a signal to end");
                failpoints::pass(Gate::ShutdownSignalled).await;
                daemon.shut_down(next);
                next = match next {
                    Urgency::Drain => Urgency::Hurry,
                    Urgency::Hurry | Urgency::Kill => Urgency::Kill,
                };
            }
            Err(error) => {
                tracing::error!(%error, "signals can't be received any more");
                std::future::pending::<()>().await;
            }
        }
    }
}
