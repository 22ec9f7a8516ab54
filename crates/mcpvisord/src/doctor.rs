//! What this machine allows, for people.
use crate::config::Config;
use mcpvisor_control::socket::Surroundings;
use nix::sys::socket::{getsockopt, sockopt};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A name, and what was found: good, or what is not and why it matters.
pub(crate) type Finding = (String, Result<String, String>);

/// Looks, and changes nothing but for what the probe of containment makes and removes again.
pub(crate) fn findings() -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        mcpvisor_process::probe().into_iter().map(|(name, told)| (name.to_owned(), told)).collect();
    findings.extend([open_files(), peer_pidfd(), socket_path(), default_config()]);
    findings
}

fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let told = match limit {
        None => Ok("no limit".to_owned()),
        Some(limit @ 0..4096) => Err(format!(
            "{limit}: a session takes about four per server, so this is enough for some {}; raise LimitNOFILE= or ulimit -Hn",
            limit / 5
        )),
        Some(limit) => Ok(format!("{limit}")),
    };
    ("open files".into(), told)
}

fn peer_pidfd() -> Finding {
    let told = match UnixStream::pair().map(|(a, _b)| getsockopt(&a, sockopt::PeerPidfd).is_ok()) {
        Ok(true) => Ok("SO_PEERPIDFD works: a client's pid can't come to mean another process".to_owned()),
        Ok(false) => {
            Err("SO_PEERPIDFD needs Linux 6.5: a client's pid is trusted as it was at accept".to_owned())
        }
        Err(error) => Err(error.to_string()),
    };
    ("clients".into(), told)
}

fn socket_path() -> Finding {
    let path = Surroundings::of_process(None).listen_path(Path::is_dir);
    // The folders that are missing are made by the daemon.
    let there = path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let (path, there) = (path.display(), (there, rustix::fs::access(there, access)));
    let told = match there {
        (_, Ok(())) => Ok(format!("a daemon that this user starts listens at {path}")),
        (folder, Err(error)) => Err(format!(
            "a daemon that this user starts can't listen at {path} ({}: {error}); set XDG_RUNTIME_DIR, or name another place \
             with --socket",
            folder.display()
        )),
    };
    ("socket".into(), told)
}

fn default_config() -> Finding {
    let told = match crate::config::Source::new(None).path() {
        None => Ok("a daemon that this user starts reads none: the defaults hold".to_owned()),
        Some(path) => match Config::load(&path) {
            Ok(_) => Ok(format!("a daemon that this user starts reads {}, which is right", path.display())),
            Err(error) => Err(error.to_string()),
        },
    };
    ("configuration".into(), told)
}
