//! A process that SIGKILL does not end, for as long as a test wants: frozen by the version-1 freezer.
use mcpvisor_testkit::{SOON, until};
use std::fs;
use std::path::PathBuf;

/// Freezes processes; thaws them when dropped.
#[derive(Debug)]
pub(crate) struct Freezer {
    dir: PathBuf,
}

impl Freezer {
    /// None where this machine has no version-1 freezer that we may use; the test is then left out.
    pub(crate) fn create(name: &str) -> Option<Self> {
        let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = text.lines().find_map(|line| {
            let (before, after) = line.split_once(" - cgroup ")?;
            let is_freezer = after.split([' ', ',']).any(|option| option == "freezer");
            is_freezer.then(|| before.split(' ').nth(4).map(PathBuf::from))?
        });
        let dir = mount.map(|mount| mount.join(format!("mcpvisor-{name}-{}", std::process::id())));
        let made = dir.filter(|dir| fs::create_dir(dir).is_ok()).map(|dir| Self { dir });
        if made.is_none() {
            eprintln!("left out: this machine gives us no version-1 freezer");
        }
        made
    }

    /// Freezes this process.
    pub(crate) fn freeze(&self, pid: u32) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).expect("a process of ours can be moved");
        fs::write(self.dir.join("freezer.state"), "FROZEN").expect("a freezer can freeze");
        let state = || fs::read_to_string(self.dir.join("freezer.state")).unwrap_or_default();
        until(SOON, || (state().trim() == "FROZEN").then_some(())).expect("it freezes");
    }

    /// Lets it go on, and take its signals.
    pub(crate) fn thaw(&self) {
        let _ = fs::write(self.dir.join("freezer.state"), "THAWED");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        until(SOON, || {
            // Whatever still lives in it goes back where it came from.
            let inside = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            if let Some(parent) = self.dir.parent() {
                inside.lines().for_each(|pid| drop(fs::write(parent.join("cgroup.procs"), pid)));
            }
            fs::remove_dir(&self.dir).is_ok().then_some(())
        });
    }
}
