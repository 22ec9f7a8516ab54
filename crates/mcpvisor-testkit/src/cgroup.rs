//! A cgroup for everything that one test starts: what leaves its parents, its session and its environment is still in here.
use crate::procfs;
use crate::wait::until;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup below the test's own one. Killed and removed when dropped.
#[derive(Debug)]
pub struct TestCgroup {
    dir: PathBuf,
    path: String,
}

impl TestCgroup {
    /// Makes one; None where this machine does not let us.
    #[must_use]
    pub fn create(name: &str) -> Option<Self> {
        let mount = procfs::cgroup_mount()?;
        let own = procfs::cgroup(std::process::id())?;
        let path = format!("{}/{name}", own.trim_end_matches('/'));
        let dir = mount.join(path.trim_start_matches('/'));
        fs::create_dir(&dir).ok()?;
        let made = Self { dir, path };
        // Without cgroup.kill the scene could not be cleaned up through it, nor would the daemon use it.
        made.dir.join("cgroup.kill").exists().then_some(made)
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the process is in it, or below.
    #[must_use]
    pub fn holds(&self, pid: u32) -> bool {
        procfs::cgroup(pid).is_some_and(|path| {
            path.strip_prefix(self.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The cgroups below it, deepest first.
    #[must_use]
    pub fn below(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.dir, &mut found);
        found
    }
}

/// The cgroups below a folder, deepest first.
fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), found);
            found.push(entry.path());
        }
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let removed = until(Duration::from_secs(5), || {
            let _ = fs::write(self.dir.join("cgroup.kill"), "1");
            for dir in self.below() {
                let _ = fs::remove_dir(dir);
            }
            (fs::remove_dir(&self.dir).is_ok() || !self.dir.exists()).then_some(())
        });
        if removed.is_none() {
            eprintln!("the cgroup {} could not be removed", self.dir.display());
        }
    }
}
