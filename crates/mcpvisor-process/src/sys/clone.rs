//! The birth of a child: clone3 with a shared address space, so that errors are told through memory.
use super::child::{Arg, Plan, Report, Stage, child_main};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
/// Resets all handlers (Linux 5.5); ignored signals stay ignored.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Linux 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// The size of the structure before `set_tid` and `cgroup` were added (Linux 5.3).
const SIZE_WITHOUT_CGROUP: usize = 64;

/// `struct clone_args` of clone3(2).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A child that was born, whether or not its program runs.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Its process id; it is held by the zombie until this process reaps it.
    pub(crate) pid: u32,
    /// Its pidfd, close-on-exec.
    pub(crate) pidfd: OwnedFd,
    /// Where the setup failed, and errno. The child is exiting then.
    pub(crate) failure: Option<(Stage, i32)>,
}

/// The stack on which children run between birth and exec, with a guard page below. One child at a time uses it.
#[derive(Debug)]
pub(crate) struct Stack {
    base: *mut c_void,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and no thread keeps a reference into it.
unsafe impl Send for Stack {}

impl Stack {
    const LENGTH: usize = 128 * 1024;

    /// Maps a stack.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), Self::LENGTH, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { base, length: Self::LENGTH };
        // SAFETY: the lowest page lies inside the mapping made above, and nothing uses it yet.
        if unsafe { libc::mprotect(base, 4096, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no child runs on it: a child holds its thread in clone3 until it has left it.
        unsafe { libc::munmap(self.base, self.length) };
    }
}

/// Starts what `plan` says, inside `cgroup` if one is given. The calling thread is held until the child has executed its
/// program or has failed. `born` is set by the kernel to the child's pid before the child runs, so that another thread can
/// know it while this one is held. The child is killed when the calling *thread* ends, where the plan says so.
pub(crate) fn spawn(
    stack: &mut Stack,
    plan: &Plan,
    cgroup: Option<BorrowedFd<'_>>,
    born: &AtomicI32,
) -> io::Result<Spawned> {
    let report = Report::default();
    // No handler of ours may ever run in the child, which shares our memory. Into a cgroup, the kernel has reset them at birth.
    let signals = if cgroup.is_some() { plan.ignored_signals() | super::signal::ignored() } else { u64::MAX };
    let arg = Arg { plan, signals, report: &report };
    let (pid, pidfd) =
        with_signals_blocked(|| birth(stack, cgroup, born, child_main, (&raw const arg).cast()))?;
    Ok(Spawned { pid, pidfd, failure: report.take() })
}

/// Whether a child can be born inside `cgroup`: makes one that exits at once, and waits for it.
pub(crate) fn probe_clone(cgroup: Option<BorrowedFd<'_>>) -> io::Result<()> {
    extern "C" fn leave(_: *const c_void) -> ! {
        // SAFETY: exit_group ends the child alone; the parent's memory is left as it is.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
        std::process::abort()
    }
    let mut stack = Stack::new()?;
    let born = AtomicI32::new(0);
    let (pid, _pidfd) =
        with_signals_blocked(|| birth(&mut stack, cgroup, &born, leave, std::ptr::null::<c_void>()))?;
    // A reaper of this process may have been quicker.
    let _ = super::wait::wait_exited(pid);
    let _ = super::wait::reap(pid);
    Ok(())
}

fn birth(
    stack: &mut Stack,
    cgroup: Option<BorrowedFd<'_>>,
    born: &AtomicI32,
    entry: extern "C" fn(*const c_void) -> !,
    arg: *const c_void,
) -> io::Result<(u32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_PARENT_SETTID,
        pidfd: (&raw mut pidfd) as u64,
        parent_tid: born.as_ptr() as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.base as u64,
        stack_size: stack.length as u64,
        ..CloneArgs::default()
    };
    let mut size = SIZE_WITHOUT_CGROUP;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP | CLONE_CLEAR_SIGHAND;
        args.cgroup = cgroup.as_raw_fd() as u64;
        size = size_of::<CloneArgs>();
    }
    // SAFETY: `args` is a valid structure of `size` bytes whose pointers outlive the call; the stack is ours alone; `entry`
    // never returns; signals are blocked by the caller, so that no handler runs in the shared memory.
    let result = unsafe { clone3(&raw const args, size, entry, arg) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    // SAFETY: clone3 succeeded with CLONE_PIDFD, so the kernel has stored a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((result as u32, pidfd))
}

/// The system call itself: the parent gets the result, the child calls `entry(arg)` on its own stack.
///
/// # Safety
/// `args` describes a child with a stack of its own that lives until the call returns (CLONE_VFORK), and all its pointers are
/// valid. `entry` must never return, must not unwind, and must do only what is safe in memory shared with a running program.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(
    args: *const CloneArgs,
    size: usize,
    entry: extern "C" fn(*const c_void) -> !,
    arg: *const c_void,
) -> isize {
    let result: isize;
    // SAFETY: the caller's promise; registers that the call clobbers are declared. The child never comes back out of the block.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size,
            in("r12") arg,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(
    args: *const CloneArgs,
    size: usize,
    entry: extern "C" fn(*const c_void) -> !,
    arg: *const c_void,
) -> isize {
    let result: isize;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            inlateout("x0") args => result,
            in("x1") size,
            in("x8") libc::SYS_clone3,
            in("x20") arg,
            in("x21") entry,
            lateout("x30") _,
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("mcpvisor-process knows how to start processes on x86_64 and aarch64 only");

/// Blocks every signal around `f`, the C library's own ones too: a handler that ran in the child would run in our memory.
fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    let all: u64 = !0;
    let mut before: u64 = 0;
    // SAFETY: both masks are eight bytes long, as the kernel is told; only this thread's mask changes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, 8usize);
    }
    let result = f();
    // SAFETY: as above; restores what was read.
    unsafe {
        let nowhere = std::ptr::null_mut::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, nowhere, 8usize);
    }
    std::sync::atomic::fence(Ordering::SeqCst);
    result
}
