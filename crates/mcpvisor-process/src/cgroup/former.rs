//! The cgroup of an instance that is dead, by its sessions.
use super::Tree;
use rustix::fs::OFlags;
use std::io;

impl Tree {
    /// The names of the sessions that have a cgroup.
    pub(crate) fn sessions(&self) -> io::Result<Vec<String>> {
        let listing = self.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::new(listing)? {
            let entry = entry?;
            if let Some(session) = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix("s-")) {
                found.push(session.to_owned());
            }
        }
        Ok(found)
    }

    /// Whether the session has a process that has not exited. One without a cgroup has none.
    pub(crate) fn session_populated(&self, session: &str) -> io::Result<bool> {
        self.populated_at(&Self::session_dir(session))
    }

    /// The session's processes that have not exited, each with the leaf that it is in.
    pub(crate) fn session_processes(&self, session: &str) -> io::Result<Vec<(String, u32)>> {
        let top = Self::session_dir(session);
        let mut dirs = Vec::new();
        self.visit(&top, 0, &mut |dir| dirs.push(dir.to_owned()))?;
        let mut found = Vec::new();
        for dir in dirs {
            let leaf = dir.strip_prefix(&top).and_then(|rest| rest.strip_prefix("/v-")).unwrap_or_default();
            let leaf = leaf.split('/').next().unwrap_or_default().to_owned();
            found.extend(self.members(&dir).into_iter().map(|pid| (leaf.clone(), pid)));
        }
        Ok(found)
    }

    /// Removes the cgroup of a session in which nothing is left, and all below it.
    pub(crate) fn remove_former(&self, session: &str) -> io::Result<()> {
        self.remove_tree(&Self::session_dir(session))
    }
}
