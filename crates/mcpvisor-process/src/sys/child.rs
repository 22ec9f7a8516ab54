//! What a child does between its birth and its program. It runs in the parent's memory while the launching thread is held:
//! only system calls, no allocation, no lock, no panic. Everything that it needs is prepared in a [`Plan`].
use std::ffi::{CStr, CString, c_char, c_long, c_void};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// The step at which a child failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    Session = 1,
    Limit,
    Identity,
    Directory,
    ParentDeath,
    NoNewPrivileges,
    Descriptors,
    Exec,
}

impl Stage {
    /// The stage as it is told through memory or over a socket.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        use Stage::*;
        [Session, Limit, Identity, Directory, ParentDeath, NoNewPrivileges, Descriptors, Exec]
            .into_iter()
            .find(|stage| *stage as u32 == number)
    }
}

/// A resource limit in the kernel's layout (`struct rlimit64`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Limit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
    pub(crate) resource: u32,
}

/// Who the child becomes.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// A null-terminated array of strings, as execve(2) wants it.
#[derive(Debug)]
struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn new(owned: Vec<CString>) -> Self {
        // The heap memory of a CString stays where it is when the vector of them moves.
        let pointers = owned.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect();
        Self { pointers, _owned: owned }
    }
}

/// Everything that a child needs, prepared before its birth.
#[derive(Debug)]
pub(crate) struct Plan {
    program: CString,
    args: Strings,
    /// For a file without a known format: `/bin/sh FILE ARGS…`, as execvp(3) does.
    shell_args: Strings,
    env: Strings,
    streams: [OwnedFd; 3],
    cwd: Option<OwnedFd>,
    umask: Option<u32>,
    limits: Vec<Limit>,
    nice: Option<i32>,
    ignored: u64,
    identity: Option<Identity>,
    no_new_privs: bool,
    no_shell: bool,
    parent: Option<u32>,
}

impl Plan {
    /// A plan to run `program` (a path; relative ones count from the child's directory). None of `streams` may be numbered 0, 1
    /// or 2, since the child puts them there one after the other.
    pub(crate) fn new(
        program: CString,
        args: Vec<CString>,
        env: Vec<CString>,
        streams: [OwnedFd; 3],
    ) -> Self {
        debug_assert!(streams.iter().all(|s| s.as_raw_fd() > 2), "the caller has moved low descriptors away");
        let shell = [CString::from(SHELL), program.clone()];
        let shell_args = shell.into_iter().chain(args.iter().skip(1).cloned()).collect();
        let args = if args.is_empty() { vec![program.clone()] } else { args };
        Self {
            program,
            args: Strings::new(args),
            shell_args: Strings::new(shell_args),
            env: Strings::new(env),
            streams,
            cwd: None,
            umask: None,
            limits: Vec::new(),
            nice: None,
            ignored: 0,
            identity: None,
            no_new_privs: false,
            no_shell: false,
            parent: None,
        }
    }

    pub(crate) fn cwd(mut self, cwd: Option<OwnedFd>) -> Self {
        self.cwd = cwd;
        self
    }
    pub(crate) fn umask(mut self, umask: Option<u32>) -> Self {
        self.umask = umask;
        self
    }
    pub(crate) fn limits(mut self, limits: Vec<Limit>) -> Self {
        self.limits = limits;
        self
    }
    pub(crate) fn nice(mut self, nice: Option<i32>) -> Self {
        self.nice = nice;
        self
    }
    /// Signals that the program starts with ignored; numbers outside 1 to 64 are passed over.
    pub(crate) fn ignored(mut self, signals: &[i32]) -> Self {
        self.ignored =
            signals.iter().filter(|s| (1..=64).contains(*s)).fold(0, |mask, s| mask | 1 << (s - 1));
        self
    }
    pub(crate) fn identity(mut self, identity: Option<Identity>) -> Self {
        self.identity = identity;
        self
    }
    pub(crate) fn no_new_privs(mut self, yes: bool) -> Self {
        self.no_new_privs = yes;
        self
    }
    /// A file without a known format is an error, and not given to a shell.
    pub(crate) fn no_shell(mut self, yes: bool) -> Self {
        self.no_shell = yes;
        self
    }
    /// The child is killed when the thread that launches it ends; it checks that `parent` is still its parent.
    pub(crate) fn die_with(mut self, parent: u32) -> Self {
        self.parent = Some(parent);
        self
    }
}

const SHELL: &CStr = c"/bin/sh";

/// How a child tells of its failure.
#[derive(Debug, Default)]
pub(super) struct Report {
    stage: AtomicU32,
    errno: AtomicI32,
}

impl Plan {
    /// The signals that the program is to ignore, as a mask.
    pub(super) fn ignored_signals(&self) -> u64 {
        self.ignored
    }
}

impl Report {
    pub(super) fn take(&self) -> Option<(Stage, i32)> {
        Some((Stage::from_number(self.stage.load(Ordering::SeqCst))?, self.errno.load(Ordering::SeqCst)))
    }
}

/// What the child's entry is given.
pub(super) struct Arg<'a> {
    pub(super) plan: &'a Plan,
    /// The signals whose dispositions must be set, as a mask: all, or those that may be ignored where the kernel has already
    /// reset all handlers.
    pub(super) signals: u64,
    pub(super) report: &'a Report,
}

/// The kernel's `struct sigaction`: the C library's wrapper refuses its own two signals and would keep their handlers.
#[repr(C)]
struct KernelSigaction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

macro_rules! call {
    ($number:expr $(, $arg:expr)*) => {{
        // SAFETY: a system call whose pointers (if any) come from the plan, which outlives the child's setup. It changes the
        // state of the child alone: descriptors, handlers, ids and directory are not shared.
        let result: c_long = unsafe { libc::syscall($number $(, $arg)*) };
        if result == -1 { Err(errno()) } else { Ok(result) }
    }};
}

fn errno() -> i32 {
    // SAFETY: the location of errno is valid in every thread; the child borrows that of the launching thread, which is held.
    unsafe { *libc::__errno_location() }
}

/// The child's entry.
pub(super) extern "C" fn child_main(arg: *const c_void) -> ! {
    // SAFETY: the launching thread passes an `Arg` that lives on its stack, and is held until the child has left this memory.
    let arg = unsafe { &*arg.cast::<Arg<'_>>() };
    let (stage, errno) = become_program(arg);
    arg.report.errno.store(errno, Ordering::SeqCst);
    arg.report.stage.store(stage as u32, Ordering::SeqCst);
    loop {
        let _ = call!(libc::SYS_exit_group, 127);
    }
}

/// Returns only if something failed.
fn become_program(arg: &Arg<'_>) -> (Stage, i32) {
    match prepare(arg.plan, arg.signals) {
        Err(failure) => failure,
        Ok(()) => (Stage::Exec, execute(arg.plan)),
    }
}

fn prepare(plan: &Plan, signals: u64) -> Result<(), (Stage, i32)> {
    call!(libc::SYS_setsid).map_err(|e| (Stage::Session, e))?;
    set_signals(signals, plan.ignored);
    if let Some(umask) = plan.umask {
        let _ = call!(libc::SYS_umask, umask);
    }
    for limit in &plan.limits {
        set_limit(limit).map_err(|e| (Stage::Limit, e))?;
    }
    if let Some(nice) = plan.nice {
        // A friendlier value than ours may need a right that we lack; the program runs all the same.
        let _ = call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice);
    }
    if let Some(identity) = &plan.identity {
        take_identity(identity).map_err(|e| (Stage::Identity, e))?;
    }
    if let Some(cwd) = &plan.cwd {
        call!(libc::SYS_fchdir, cwd.as_raw_fd()).map_err(|e| (Stage::Directory, e))?;
    }
    if let Some(parent) = plan.parent {
        // After the change of ids, which clears it.
        call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)
            .map_err(|e| (Stage::ParentDeath, e))?;
        if call!(libc::SYS_getppid) != Ok(c_long::from(parent)) {
            return Err((Stage::ParentDeath, libc::ESRCH));
        }
    }
    if plan.no_new_privs {
        call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            .map_err(|e| (Stage::NoNewPrivileges, e))?;
    }
    for (stream, target) in plan.streams.iter().zip(0..) {
        call!(libc::SYS_dup3, stream.as_raw_fd(), target, 0).map_err(|e| (Stage::Descriptors, e))?;
    }
    close_the_rest();
    let none: u64 = 0;
    let nowhere = std::ptr::null_mut::<u64>();
    let _ = call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, nowhere, 8usize);
    Ok(())
}

fn execute(plan: &Plan) -> i32 {
    let env = plan.env.pointers.as_ptr();
    let error = match call!(libc::SYS_execve, plan.program.as_ptr(), plan.args.pointers.as_ptr(), env) {
        Ok(_) => 0,
        Err(error) => error,
    };
    if error != libc::ENOEXEC || plan.no_shell {
        return error;
    }
    match call!(libc::SYS_execve, SHELL.as_ptr(), plan.shell_args.pointers.as_ptr(), env) {
        Ok(_) => 0,
        Err(error) => error,
    }
}

/// Ignores the signals of `ignored`, and gives the others of `signals` their default disposition.
fn set_signals(signals: u64, ignored: u64) {
    for signal in (1..=64_i32).filter(|signal| signals >> (signal - 1) & 1 == 1) {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        let ignore = (ignored >> (signal - 1)) & 1 == 1;
        let handler = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
        let action = KernelSigaction { handler, flags: 0, restorer: 0, mask: 0 };
        let nowhere = std::ptr::null_mut::<KernelSigaction>();
        let _ = call!(libc::SYS_rt_sigaction, signal, &raw const action, nowhere, 8usize);
    }
}

/// What this process does at a signal: a handler's address, `SIG_DFL` or `SIG_IGN`. None for a number that is no signal.
pub(super) fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    let mut action = KernelSigaction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    let nothing = std::ptr::null::<KernelSigaction>();
    call!(libc::SYS_rt_sigaction, signal, nothing, &raw mut action, 8usize).ok().map(|_| action.handler)
}

/// Sets a limit, or as much of it as our own hard limit allows: the client that sent it may have had a higher one.
fn set_limit(limit: &Limit) -> Result<(), i32> {
    let nothing = std::ptr::null::<Limit>();
    let nowhere = std::ptr::null_mut::<Limit>();
    match call!(libc::SYS_prlimit64, 0, limit.resource, &raw const *limit, nowhere) {
        Err(libc::EPERM) => {}
        other => return other.map(|_| ()),
    }
    let mut ours = Limit { soft: 0, hard: 0, resource: 0 };
    call!(libc::SYS_prlimit64, 0, limit.resource, nothing, &raw mut ours)?;
    let hard = limit.hard.min(ours.hard);
    let clamped = Limit { soft: limit.soft.min(hard), hard, resource: limit.resource };
    call!(libc::SYS_prlimit64, 0, limit.resource, &raw const clamped, nowhere).map(|_| ())
}

/// The raw calls, since the C library's would change the ids of all threads of the parent.
fn take_identity(identity: &Identity) -> Result<(), i32> {
    call!(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr())?;
    call!(libc::SYS_setresgid, identity.gid, identity.gid, identity.gid)?;
    call!(libc::SYS_setresuid, identity.uid, identity.uid, identity.uid)?;
    Ok(())
}

fn close_the_rest() {
    if call!(libc::SYS_close_range, 3u32, u32::MAX, 0u32).is_ok() {
        return;
    }
    // Before Linux 5.9: one by one, up to the limit on their number.
    let mut ours = Limit { soft: 0, hard: 0, resource: 0 };
    let nothing = std::ptr::null::<Limit>();
    let _ = call!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, nothing, &raw mut ours);
    let last = ours.soft.min(1 << 20) as RawFd;
    for descriptor in 3..last {
        let _ = call!(libc::SYS_close, descriptor);
    }
}
