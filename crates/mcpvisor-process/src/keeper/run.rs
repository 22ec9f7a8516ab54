//! The keeper process. One thread: what hangs in it hangs one server only.
use super::protocol::{Connection, FromKeeper, Launch, ToKeeper};
use super::tree::Tree;
use crate::Rung;
use crate::launch::above_standard;
use crate::sys::{self, Identity, Limit, Plan};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The main function of a keeper process (see [`Options::keeper_command`](crate::Options)); never returns.
///
/// The daemon's socket is descriptor 0. When it closes, because the daemon is gone, the keeper kills what it keeps and ends.
/// Its exit status says nothing; what there is to say it says over the socket.
pub fn keeper_main() -> ! {
    let status = match run() {
        Ok(()) => 0,
        Err(_) => 1,
    };
    std::process::exit(status)
}

fn run() -> io::Result<()> {
    // What ends a keeper is the daemon or the end of what it keeps.
    for signal in [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ] {
        sys::ignore_signal(signal)?;
    }
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    child.thread_block()?;
    let signals = SignalFd::with_flags(&child, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let mut connection = Connection::new(socket);
    let order = receive_order(&mut connection)?;
    let mut keeper =
        Keeper { connection, tree: Tree::default(), rung: Rung::Itself, main: 0, orphaned: false };
    if !keeper.launch(order)? {
        return Ok(());
    }
    keeper.serve(&signals)
}

struct Order {
    launch: Launch,
    streams: [OwnedFd; 3],
    cwd: Option<OwnedFd>,
}

fn receive_order(connection: &mut Connection) -> io::Result<Order> {
    let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let launch = loop {
        match connection.next()? {
            Some(ToKeeper::Launch(launch)) => break *launch,
            Some(_) => return Err(bad("the first message is no launch")),
            None if !connection.fill()? => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    };
    let mut descriptors = connection.take_descriptors().into_iter();
    let mut next = || descriptors.next().ok_or_else(|| bad("a descriptor is missing"));
    let streams = [above_standard(next()?)?, above_standard(next()?)?, above_standard(next()?)?];
    let cwd = if launch.has_cwd { Some(next()?) } else { None };
    Ok(Order { launch, streams, cwd })
}

struct Keeper {
    connection: Connection,
    tree: Tree,
    rung: Rung,
    main: u32,
    /// The daemon is gone.
    orphaned: bool,
}

impl Keeper {
    /// Starts the server. False: it could not be started, nothing is left of it, and the daemon knows.
    fn launch(&mut self, order: Order) -> io::Result<bool> {
        let Order { launch, streams, cwd } = order;
        let words = |words: Vec<super::protocol::Text>| words.into_iter().map(Into::into).collect();
        let limits = launch.limits.into_iter().map(|(resource, soft, hard)| Limit { soft, hard, resource });
        let plan = Plan::new(launch.program.into(), words(launch.args), words(launch.env), streams)
            .cwd(cwd)
            .umask(launch.umask)
            .limits(limits.collect())
            .nice(launch.nice)
            .ignored(&launch.ignored_signals)
            .identity(launch.credentials.map(|(uid, gid, groups)| Identity { uid, gid, groups }))
            .no_new_privs(launch.no_new_privs)
            .no_shell(launch.is_binary)
            .die_with(std::process::id());
        let mut stack = sys::Stack::new()?;
        let spawned = sys::spawn(&mut stack, &plan, None, &std::sync::atomic::AtomicI32::new(0));
        // With the plan go our copies of the server's streams: end of file must reach the daemon when the server closes them.
        drop(plan);
        let failed = match spawned {
            Err(error) => FromKeeper::NotBorn { errno: error.raw_os_error().unwrap_or(0) },
            Ok(spawned) => match spawned.failure {
                None => {
                    self.main = spawned.pid;
                    self.tell(&FromKeeper::Started { pid: spawned.pid });
                    return Ok(true);
                }
                Some((stage, errno)) => {
                    sys::wait_exited(spawned.pid)?;
                    sys::reap(spawned.pid)?;
                    FromKeeper::Failed { stage: stage as u32, errno }
                }
            },
        };
        self.tell(&failed);
        Ok(false)
    }

    fn tell(&mut self, message: &FromKeeper) {
        // A daemon that is gone is noticed as the end of its stream.
        let _ = self.connection.send(message, &[]);
    }

    fn serve(&mut self, signals: &SignalFd) -> io::Result<()> {
        let mut pause = KILL_AGAIN_FIRST;
        loop {
            if self.reap()? {
                self.tell(&FromKeeper::Empty);
                return Ok(());
            }
            let killing = self.orphaned || self.rung == Rung::Sigkill;
            let timeout = killing.then(|| Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() });
            let (told, exited) = self.wait(signals, timeout.as_ref())?;
            if exited {
                while signals.read_signal()?.is_some() {}
            }
            if told {
                self.listen()?;
            }
            if killing && !told && !exited {
                self.tree.kill();
                pause = (pause * 2).min(KILL_AGAIN_LAST);
            }
        }
    }

    /// Whether the daemon has said something, and whether a child has exited.
    fn wait(&self, signals: &SignalFd, timeout: Option<&Timespec>) -> io::Result<(bool, bool)> {
        let signals = PollFd::new(signals, PollFlags::IN);
        let told = PollFd::from_borrowed_fd(self.connection.socket(), PollFlags::IN);
        let mut all = [signals, told];
        // A closed socket is readable for ever.
        let watched = if self.orphaned { &mut all[..1] } else { &mut all[..] };
        match poll(watched, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [signals, told] = all;
        Ok((!self.orphaned && !told.revents().is_empty(), !signals.revents().is_empty()))
    }

    fn listen(&mut self) -> io::Result<()> {
        if !self.connection.fill().unwrap_or(false) {
            self.orphaned = true;
            self.tree.kill();
            return Ok(());
        }
        while let Some(message) = self.connection.next()? {
            let rung = match message {
                ToKeeper::Launch(_) => continue,
                ToKeeper::StdinClosed => Rung::Stdin,
                ToKeeper::Terminate => Rung::Sigterm,
                ToKeeper::Kill => Rung::Sigkill,
            };
            // Those that have exited by now did so on the rung before.
            self.reap()?;
            let processes = self.tree.look();
            self.tell(&FromKeeper::Seen { processes });
            self.rung = self.rung.max(rung);
            match rung {
                Rung::Sigterm => self.tree.terminate(),
                Rung::Sigkill => self.tree.kill(),
                Rung::Itself | Rung::Stdin => {}
            }
        }
        Ok(())
    }

    /// Reaps what has exited. True: no child is left, and so no descendant.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            let pid = match sys::peek_any() {
                Ok(None) => return Ok(false),
                Ok(Some(zombie)) => zombie.pid,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(true),
                Err(error) => return Err(error),
            };
            let process = self.tree.forget(pid);
            if let Some(reaped) = sys::reap(pid)? {
                let cpu_micros = u64::try_from(reaped.cpu.as_micros()).unwrap_or(u64::MAX);
                let (exit, rung) = (reaped.exit.into(), self.rung.into());
                self.tell(&FromKeeper::Reaped { process, exit, rung, main: pid == self.main, cpu_micros });
            }
        }
    }
}

const KILL_AGAIN_FIRST: Duration = Duration::from_millis(5);
const KILL_AGAIN_LAST: Duration = Duration::from_millis(500);
