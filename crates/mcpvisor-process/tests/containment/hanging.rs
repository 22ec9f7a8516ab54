//! Programs and directories on a file system that does not answer.
use crate::harness::Named;
use crate::world::{World, eventually, is_root, program, sh};
use mcpvisor_process::{ContainmentKind, Cwd, LaunchErrorKind, LaunchSpec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Named] = &[
    ("a_program_or_directory_that_hangs_delays_no_other_start", hangs_in_open),
    ("an_exec_that_hangs_delays_no_other_start", hangs_in_exec),
    ("an_exec_that_can_not_even_be_killed", hangs_unkillably),
];

/// A FUSE mount: what is asked of it waits until the mount is dropped.
pub(crate) struct Dead {
    device: Option<OwnedFd>,
    path: PathBuf,
}

impl Dead {
    /// None where this can't be tried.
    pub(crate) fn mount() -> Option<Self> {
        if !is_root() {
            println!("not tried: needs root");
            return None;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let Ok(device) = rustix::fs::open("/dev/fuse", flags, Mode::empty()) else {
            println!("not tried: needs /dev/fuse");
            return None;
        };
        let path = std::env::temp_dir().join(format!("mcpvisor-dead-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        mount("dead", &path, "fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
            .unwrap();
        Some(Self { device: Some(device), path })
    }

    /// Answers the first request, so that the kernel sends others, which then can't be interrupted any more once they are read.
    pub(crate) fn greet(&self) {
        let device = self.device.as_ref().unwrap();
        let mut request = [0_u8; 1 << 17];
        rustix::io::read(device, &mut request[..]).unwrap();
        let unique = &request[8..16];
        // struct fuse_out_header and struct fuse_init_out of version 7.31.
        let mut answer = Vec::new();
        answer.extend(80_u32.to_le_bytes());
        answer.extend(0_i32.to_le_bytes());
        answer.extend(unique);
        answer.extend(7_u32.to_le_bytes());
        answer.extend(31_u32.to_le_bytes());
        answer.extend([0; 8]);
        answer.extend(16_u16.to_le_bytes());
        answer.extend(12_u16.to_le_bytes());
        answer.extend(4096_u32.to_le_bytes());
        answer.extend(1_u32.to_le_bytes());
        answer.resize(80, 0);
        rustix::io::write(device, &answer).unwrap();
    }

    /// Reads a request and does not answer it.
    pub(crate) fn swallow(&self) {
        let mut request = [0_u8; 1 << 17];
        rustix::io::read(self.device.as_ref().unwrap(), &mut request[..]).unwrap();
    }

    /// Everything that waits fails.
    pub(crate) fn abort(&mut self) {
        drop(self.device.take());
    }

    /// A script whose interpreter is on the dead mount, itself on a living one.
    pub(crate) fn script(&self) -> PathBuf {
        let script = self.path.with_extension("script");
        std::fs::write(&script, format!("#!{}/interpreter\n", self.path.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        script
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.abort();
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("script"));
    }
}

const DEADLINE: Duration = Duration::from_millis(700);
/// Half of the deadline, less would do: what hangs must not be waited for.
const PROMPT: Duration = Duration::from_millis(500);

fn prompt_start(world: &World) {
    let begin = Instant::now();
    world.launch(sh("true")).empty();
    assert!(begin.elapsed() < PROMPT, "another start took {:?}", begin.elapsed());
}

/// G8.
fn hangs_in_open(kind: ContainmentKind) {
    let Some(dead) = Dead::mount() else { return };
    let world = World::start(kind);
    let path = dead.path.join("program");
    let program_hangs = LaunchSpec { deadline: DEADLINE, ..program(path.to_str().unwrap(), &[]) };
    let directory_hangs =
        LaunchSpec { deadline: DEADLINE, cwd: Cwd::Path(dead.path.join("dir")), ..sh("true") };
    let begin = Instant::now();
    let hanging = [world.begin(program_hangs), world.begin(directory_hangs)];
    prompt_start(&world);
    for launching in hanging {
        let error = launching.outcome().unwrap_err();
        assert_eq!(error.kind, LaunchErrorKind::Hung, "{error}");
        assert!(begin.elapsed() >= DEADLINE);
        assert!(launching.facts.try_recv().is_err());
    }
    // A kill does not wait for the deadline.
    let slow = LaunchSpec { deadline: Duration::from_secs(1000), ..program(path.to_str().unwrap(), &[]) };
    let launching = world.begin(slow);
    world.containment.kill(&launching.scope);
    assert_eq!(launching.outcome().unwrap_err().kind, LaunchErrorKind::Killed);
    drop(dead);
    world.end();
}

/// G8.
fn hangs_in_exec(kind: ContainmentKind) {
    let Some(dead) = Dead::mount() else { return };
    let script = dead.script();
    let world = World::start(kind);
    let spec = || LaunchSpec { deadline: DEADLINE, ..program(script.to_str().unwrap(), &[]) };
    let hanging = [world.begin(spec()), world.begin(spec())];
    prompt_start(&world);
    for launching in hanging {
        let error = launching.outcome().unwrap_err();
        assert_eq!(error.kind, LaunchErrorKind::Hung, "{error}");
        assert!(launching.facts.try_recv().is_err(), "the answer alone tells");
        assert!(launching.outcome.try_recv().is_err(), "and only once");
    }
    prompt_start(&world);
    drop(dead);
    world.end();
}

/// G23: the child of the launch can't be killed: nobody is told that it is gone before it is, and it is told of it meanwhile.
fn hangs_unkillably(kind: ContainmentKind) {
    let Some(mut dead) = Dead::mount() else { return };
    dead.greet();
    let script = dead.script();
    let world = World::start(kind);
    let launching = world
        .begin(LaunchSpec { deadline: Duration::from_millis(300), ..program(script.to_str().unwrap(), &[]) });
    dead.swallow();
    eventually("the deadline", || {
        prompt_start(&world);
        launching.outcome.try_recv().is_err() && world.report(&launching.scope).remaining.len() == 1
    });
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(800) {
        prompt_start(&world);
        assert!(launching.outcome.try_recv().is_err(), "told to be gone while it is not");
    }
    dead.abort();
    let error = launching.outcome().unwrap_err();
    assert_eq!(error.kind, LaunchErrorKind::Hung, "{error}");
    assert!(launching.facts.try_recv().is_err());
    prompt_start(&world);
    drop(dead);
    world.end();
}
