//! Processes that look like MCP servers whose client is gone.
//!
//! A stdio server is a child of its client. When the client ends without ending it, init or another adopter becomes its
//! parent. /proc does not say who is a subreaper, so adopters are known by pid 1 and by name. What is found is a hint
//! and no proof: a service that init itself started looks the same but for its stdin.
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Such a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Orphan {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// The name of its parent.
    pub(super) parent: String,
    pub(super) command: String,
}

/// Names of processes that adopt orphans.
const ADOPTERS: &[&str] =
    &["systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "runit"];

/// Looks through /proc. What can't be read (another user's, or gone meanwhile) is passed over.
pub(super) fn find() -> Vec<Orphan> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut orphans: Vec<_> = pids.filter_map(look_at).collect();
    orphans.sort_by_key(|orphan| orphan.pid);
    orphans
}

fn look_at(pid: u32) -> Option<Orphan> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let command = command_line(&fs::read(dir.join("cmdline")).ok()?);
    if !looks_like_a_server(&command) || pid == 1 || pid == std::process::id() {
        return None;
    }
    let ppid = parent_of(&fs::read_to_string(dir.join("stat")).ok()?)?;
    let parent = fs::read_to_string(format!("/proc/{ppid}/comm")).ok()?.trim().to_owned();
    if ppid != 1 && !ADOPTERS.contains(&parent.as_str()) {
        return None;
    }
    if !has_piped_stdin(&dir) || is_ours(&dir) {
        return None;
    }
    Some(Orphan { pid, uid: fs::metadata(&dir).ok()?.uid(), parent, command })
}

fn command_line(bytes: &[u8]) -> String {
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ").chars().take(256).collect()
}

/// It speaks of MCP, and is not of mcpvisor itself.
fn looks_like_a_server(command: &str) -> bool {
    let command = command.to_ascii_lowercase();
    let program = command.split(' ').next().unwrap_or_default();
    let program = Path::new(program).file_name().unwrap_or_default();
    command.contains("mcp") && program != "mcpvisor" && program != "mcpvisord"
}

/// A stdio server has a pipe or a socket there; a service of init has not.
fn has_piped_stdin(dir: &Path) -> bool {
    let target = fs::read_link(dir.join("fd/0")).unwrap_or_default();
    let target = target.to_string_lossy();
    target.starts_with("pipe:") || target.starts_with("socket:")
}

/// It belongs to a session of a daemon that runs, or that will sweep it.
fn is_ours(dir: &Path) -> bool {
    let environ = fs::read(dir.join("environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"MCPVISOR_SCOPE="))
}

/// The fourth field of a line of /proc/PID/stat; the second is a name in parentheses that may itself have some.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("42 (a) b (c) S 17 42 42 0"), Some(17));
        assert_eq!(parent_of("nonsense"), None);
    }

    #[test]
    fn servers_are_known_by_their_command() {
        assert!(looks_like_a_server("node /x/server-MCP/index.js"));
        assert!(looks_like_a_server("npx -y @modelcontextprotocol/mcp-server-everything"));
        assert!(!looks_like_a_server("/usr/bin/mcpvisor daemon"));
        assert!(!looks_like_a_server("sleep 1"));
        assert_eq!(command_line(b"node\0-e\0x y\0"), "node -e x y");
    }

    #[test]
    fn looking_finds_no_child_of_a_living_client() {
        assert!(find().iter().all(|orphan| orphan.pid != std::process::id()));
    }
}
