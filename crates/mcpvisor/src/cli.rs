//! The command line.
mod values;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mcpvisor_control::params::{Goal, IfClosing, IfOpen, Mode, OnIdle, Prefix};
use mcpvisor_control::{ApprovalId, Lease, SessionKey, SessionRef, Tenant};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use values::{
    AssignmentParser, LogTarget, ServerCommand, duration, goal, if_closing, if_open, label, mode, on_idle,
    prefix, server_command,
};

/// Opens and closes sessions of MCP servers, and proves that nothing of them is left.
#[derive(Debug, Parser)]
#[command(
    name = "mcpvisor",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    propagate_version = false
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// The daemon's socket [env: MCPVISOR_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Start a daemon of this command's own, which ends with it, sessions first
    #[arg(long, global = true, conflicts_with = "socket")]
    pub(crate) private: bool,
    /// What a private daemon holds processes with
    #[arg(long, global = true, value_name = "KIND", value_parser = ["auto", "cgroup", "keeper"])]
    pub(crate) containment: Option<String>,
    /// Print one JSON document (one a line for what streams); stdout of `run` and `attach` is the server's all the same
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print the result alone, as short as it can be told, and no notes
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// When to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Act on another user's sessions (administrators)
    #[arg(long, global = true, value_name = "UID")]
    pub(crate) user: Option<u32>,
    /// Give up after this time: 500ms, 30s, 5m, 4h
    #[arg(long, global = true, value_name = "D", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server in place of its command, and leave nothing of it behind
    Run(RunArgs),
    /// Open a session, and answer when its servers are ready
    Open(Box<OpenArgs>),
    /// Close sessions, and answer with their certificates when everything is reaped
    #[command(
        override_usage = "mcpvisor close [OPTIONS] <KEY[@GEN]>...\n       mcpvisor close [OPTIONS] <--all | --label <K=V> | --tenant <T> | --parent <KEY>>"
    )]
    Close(CloseArgs),
    /// Wait until a session is closed, or ready
    Wait(WaitArgs),
    /// List sessions
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one session in full
    Show(ShowArgs),
    /// List the processes of sessions
    Ps(PsArgs),
    /// Show the daemon's state
    Status,
    /// Speak MCP with the servers of a session, or with one of them, over stdin and stdout
    Attach(AttachArgs),
    /// List a session's tools
    Tools(ToolsArgs),
    /// Call a tool
    Call(CallArgs),
    /// Add, remove or restart a server of a live session
    #[command(subcommand)]
    Server(ServerCommands),
    /// List the tool calls that are held for a person, approve or deny them
    Approvals(ApprovalsArgs),
    /// Show what servers wrote to stderr
    Logs(LogsArgs),
    /// Show what has happened
    Events(EventsArgs),
    /// Try the kill of a quarantined session again
    Kill(SessionArgs),
    /// Tell what this machine allows, and which MCP servers are orphaned here
    Doctor,
    /// Let the daemon admit nothing more
    Drain,
    /// Let the daemon read its configuration again
    Reload,
    /// Close all sessions and end the daemon
    Shutdown(ShutdownArgs),
    /// Show the main job: open a session, call a tool, close, prove that nothing is left
    Demo,
    /// Run the daemon in the foreground (`mcpvisor daemon --help` tells its options)
    #[command(disable_help_flag = true)]
    Daemon {
        /// The daemon's own options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        args: Vec<OsString>,
    },
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, as roff
    Man {
        /// Of one command only
        command: Option<String>,
    },
    /// The bundled servers of `demo`
    #[command(hide = true)]
    DemoServer {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The session's key; made up where left out
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<SessionKey>,
    /// The server's name; the program's where left out
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<mcpvisor_control::ServerName>,
    /// Set a variable for the server
    #[arg(long, value_name = "A=B", value_parser = AssignmentParser)]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The server's working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Let the daemon relay the messages, so that calls are counted, drained and settled
    #[arg(long)]
    pub(crate) relay: bool,
    /// The server's command
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The session's key; made up where left out
    pub(crate) key: Option<SessionKey>,
    /// A profile of the daemon's configuration
    #[arg(long, value_name = "P")]
    pub(crate) profile: Option<String>,
    /// An argument of the profile
    #[arg(long = "arg", value_name = "A=B", value_parser = label)]
    pub(crate) args: Vec<(String, String)>,
    /// A server; COMMANDLINE is split into words as a shell would, and run without a shell
    #[arg(long = "server", value_name = "NAME=COMMANDLINE", value_parser = server_command)]
    pub(crate) servers: Vec<ServerCommand>,
    /// Set a variable for these servers
    #[arg(long, value_name = "A=B", value_parser = AssignmentParser)]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Their working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// How these servers are spoken to: shared, by the daemon; exclusive, by one client alone
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// How tools and prompts are named where several servers are behind one endpoint: on-conflict, as SERVER__NAME where several have the
    /// name; always; never, the last server has it
    #[arg(long, value_name = "RULE", value_parser = prefix)]
    pub(crate) prefix: Option<Prefix>,
    /// Hold calls of these tools until a person approves them: `*` is any text, `?` any one character
    #[arg(long, value_name = "PATTERN")]
    pub(crate) hold: Vec<String>,
    /// A label for `list` and `close`
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// The quota group
    #[arg(long, value_name = "T")]
    pub(crate) tenant: Option<Tenant>,
    /// The session that this one is closed before; closing that closes this
    #[arg(long, value_name = "KEY")]
    pub(crate) parent: Option<SessionKey>,
    /// What ends the session by its own end: none, connection (this command stays in the foreground), pid:N (a process of yours)
    #[arg(long, default_value = "none")]
    pub(crate) lease: Lease,
    /// Close the session after this time
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Close the session after this time without a call or a client; 0s: never. The profile's, or the daemon's, where left out
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// What becomes of it then: close; park, its servers are stopped until someone calls it, and it keeps its key and its slot
    #[arg(long, value_name = "WHAT", default_value = "close", value_parser = on_idle)]
    pub(crate) on_idle: OnIdle,
    /// Answer as soon as the session is admitted
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Where there is no room: wait so long for a slot, in turn with other users and tenants
    #[arg(long = "wait", value_name = "D", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) queue: Option<Duration>,
    /// Where the key is still being closed: wait, fail
    #[arg(long, value_name = "WHAT", default_value = "wait", value_parser = if_closing)]
    pub(crate) if_closing: IfClosing,
    /// Where the key is open: join, fail
    #[arg(long, value_name = "WHAT", default_value = "join", value_parser = if_open)]
    pub(crate) if_open: IfOpen,
    /// Names the request: sent again with the same id, it gets the first one's answer, and is carried out once
    #[arg(long, value_name = "ID")]
    pub(crate) request_id: Option<String>,
    /// Write the session's token into this file, which must not be there yet, and show it nowhere else. Where the session is open already
    /// it is joined and shown, there is no file, since only who began it has its token, and the exit status is 1
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The command of a server that is named `main`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    /// Which sessions, each perhaps of one generation only
    #[arg(value_name = "KEY[@GEN]", required_unless_present_any = ["all", "labels", "tenant", "parent"])]
    pub(crate) keys: Vec<SessionRef>,
    /// All of them
    #[arg(long, conflicts_with_all = ["keys", "labels", "tenant", "parent"])]
    pub(crate) all: bool,
    /// Those with this label
    #[arg(long = "label", value_name = "K=V", value_parser = label, conflicts_with = "keys")]
    pub(crate) labels: Vec<(String, String)>,
    /// Those of this quota group
    #[arg(long, value_name = "T", conflicts_with = "keys")]
    pub(crate) tenant: Option<Tenant>,
    /// Those below this session, at any depth; not the session itself
    #[arg(long, value_name = "KEY", conflicts_with = "keys")]
    pub(crate) parent: Option<SessionKey>,
    /// How long calls in flight may take to finish
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) drain: Option<Duration>,
    /// Skip the drain
    #[arg(long, conflicts_with = "drain")]
    pub(crate) now: bool,
    /// Answer as soon as the teardown has begun
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Names the close of one KEY: sent again with the same id, it gets the first one's answer, whatever has the key by then
    #[arg(long, value_name = "ID", conflicts_with_all = ["all", "labels", "tenant"])]
    pub(crate) request_id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Which session, perhaps one generation of it only
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
    /// What for: closed, ready
    #[arg(long = "for", value_name = "WHAT", default_value = "closed", value_parser = goal)]
    pub(crate) goal: Goal,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Those of all users (administrators)
    #[arg(long)]
    pub(crate) all_users: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Which session
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
}

/// By what right a session is used.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Use the session with its token, which is in this file; whoever this is [env: MCPVISOR_TOKEN, the token itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// Which session
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Which session
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
    /// Also what was last said to each server and by it: the heads of the frames
    #[arg(long)]
    pub(crate) frames: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// One session only
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: Option<SessionRef>,
    /// Those of all users (administrators)
    #[arg(long, conflicts_with = "session")]
    pub(crate) all_users: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Which session: all its shared servers, as one; with /SERVER, that one alone
    #[arg(value_name = "KEY[@GEN][/SERVER]")]
    pub(crate) target: LogTarget,
    /// As the one client of an exclusive server, which ends with it
    #[arg(long)]
    pub(crate) exclusive: bool,
    /// Close the session when this client has gone, and revoke its token
    #[arg(long)]
    pub(crate) close_on_detach: bool,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Which session
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
    /// The tool's name
    pub(crate) tool: String,
    /// The tool's arguments: one JSON object, or values by name, which are read as the tool's schema says
    #[arg(value_name = "JSON | K=V")]
    pub(crate) arguments: Vec<String>,
    /// The server that has the tool
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<mcpvisor_control::ServerName>,
    /// Where images, sounds and other files of the result are saved; here where left out
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommands {
    /// Add a server, and answer when it is ready; one that fails leaves nothing
    Add(ServerAddArgs),
    /// Remove a server, and answer when nothing of it is left
    Remove(ServerArgs),
    /// End a server and start it again, and answer when it is ready
    Restart(ServerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServerAddArgs {
    /// Which session
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
    /// The server's name
    pub(crate) name: mcpvisor_control::ServerName,
    /// Set a variable for the server
    #[arg(long, value_name = "A=B", value_parser = AssignmentParser)]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The server's working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// How the server is spoken to: shared, by the daemon; exclusive, by one client alone
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// Sent again with the same id, it is carried out once and gets the first answer
    #[arg(long, value_name = "ID")]
    pub(crate) request_id: Option<String>,
    /// The server's command
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Which session
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: SessionRef,
    /// Which server
    pub(crate) name: mcpvisor_control::ServerName,
    /// How long its calls in flight may take to finish; the session's drain where left out
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) drain: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
    /// Those of all users (administrators)
    #[arg(long)]
    pub(crate) all_users: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the held calls (what is done where nothing is said)
    #[command(visible_alias = "ls")]
    List {
        /// Those of all users (administrators)
        #[arg(long)]
        all_users: bool,
    },
    /// Let a held call go on
    Approve {
        /// Which one, as the list tells it: 25.1
        id: ApprovalId,
    },
    /// Answer a held call with an error
    Deny {
        /// Which one, as the list tells it: 25.1
        id: ApprovalId,
        /// What the caller is told
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Which session, perhaps one server of it only
    #[arg(value_name = "KEY[@GEN][/SERVER]")]
    pub(crate) target: LogTarget,
    /// Go on with what comes, until the session ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// At most so many of the last lines
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Of one session only
    #[arg(value_name = "KEY[@GEN]")]
    pub(crate) session: Option<SessionRef>,
    /// Go on with what comes; of one session, until it has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// From this number on, as far as they are kept
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) since: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ShutdownArgs {
    /// Skip the drain
    #[arg(long)]
    pub(crate) now: bool,
    /// Answer at once
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[cfg(test)]
mod tests;
