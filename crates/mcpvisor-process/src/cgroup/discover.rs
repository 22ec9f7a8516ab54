//! Where our cgroups may lie: found through mountinfo and our own membership, never by a fixed path.
use rustix::fs::getxattr;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup below which we may make our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// Its path as /proc/PID/cgroup tells it, without a slash at the end.
    pub(crate) path: String,
    /// systemd handed it over to us.
    pub(crate) delegated: bool,
    /// We are a member of it ourselves.
    pub(crate) inside: bool,
}

/// The version 2 hierarchy's mount, and our own place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// The folder of the cgroup that we are in.
    pub(crate) dir: PathBuf,
    /// The folder where the hierarchy is mounted.
    pub(crate) mount: PathBuf,
    /// Our cgroup as /proc/self/cgroup tells it.
    pub(crate) path: String,
}

/// Where we are. The error says what is missing.
pub(crate) fn membership() -> Result<Membership, String> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let mounts = fs::read("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    locate(&own, &String::from_utf8_lossy(&mounts))
}

fn locate(own: &str, mountinfo: &str) -> Result<Membership, String> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.ok_or("this process is in no cgroup of version 2")?;
    if path.starts_with("/..") {
        return Err(format!("our cgroup {path} lies outside of our cgroup namespace"));
    }
    let mut best: Option<(usize, Membership)> = None;
    for line in mountinfo.lines() {
        let Some((root, mount)) = cgroup2_mount(line) else { continue };
        let Some(below) = strip_path(path, &root) else { continue };
        let mount = PathBuf::from(mount);
        let dir = if below.is_empty() { mount.clone() } else { mount.join(below) };
        if best.as_ref().is_none_or(|(longest, _)| root.len() < *longest) {
            best = Some((root.len(), Membership { dir, mount, path: path.to_owned() }));
        }
    }
    best.map(|(_, found)| found).ok_or_else(|| "no cgroup file system of version 2 is mounted".to_owned())
}

/// The root and the mount point of a line of mountinfo, if it is a cgroup2 mount.
fn cgroup2_mount(line: &str) -> Option<(String, String)> {
    let (before, after) = line.split_once(" - ")?;
    if after.split(' ').next()? != "cgroup2" {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    Some((unescape(fields.next()?), unescape(fields.next()?)))
}

/// `path` below `root`, without a slash in front.
fn strip_path<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// mountinfo writes blanks and backslashes as three octal digits.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| *first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match digits {
            Some([a, b, c]) => {
                bytes.push((a - b'0').wrapping_mul(64) + (b - b'0') * 8 + (c - b'0'));
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A cgroup below which we may make ours: one that systemd delegated to us, or our own where no systemd manages it.
/// `below_own`: never beside the one that we are in. The error says why there is none.
pub(crate) fn place(below_own: bool) -> Result<Place, String> {
    let own = membership()?;
    choose(&own, below_own, delegated, Path::new("/run/systemd/system").exists())
}

fn choose(
    own: &Membership,
    below_own: bool,
    delegated: impl Fn(&Path) -> bool,
    systemd: bool,
) -> Result<Place, String> {
    let path = own.path.trim_end_matches('/');
    if delegated(&own.dir) {
        return Ok(Place { dir: own.dir.clone(), path: path.to_owned(), delegated: true, inside: true });
    }
    // systemd's DelegateSubgroup= puts the service into a group below the delegated one. A group with a unit's name below a
    // delegated one belongs to a user's systemd instead.
    let is_unit = [".service", ".scope", ".slice"].iter().any(|suffix| path.ends_with(suffix));
    if let (Some(parent), Some((parent_path, _)), false) = (own.dir.parent(), path.rsplit_once('/'), is_unit)
        && !below_own
        && own.dir != own.mount
        && delegated(parent)
    {
        return Ok(Place {
            dir: parent.to_owned(),
            path: parent_path.to_owned(),
            delegated: true,
            inside: false,
        });
    }
    if systemd {
        return Err(format!(
            "systemd manages our cgroup {} and has not delegated it (Delegate=yes in the unit does)",
            own.path
        ));
    }
    Ok(Place { dir: own.dir.clone(), path: path.to_owned(), delegated: false, inside: true })
}

/// The variable by which a unit of a user's systemd says that it has `Delegate=yes`: its value is the unit's name (`%n`).
const UNIT: &str = "MCPVISOR_DELEGATED_UNIT";

/// The system's systemd marks what it delegates with an extended attribute; the second form is for root only. A user's systemd
/// marks nothing, in no version.
fn delegated(dir: &Path) -> bool {
    let marked = ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0_u8; 8];
        getxattr(dir, *name, &mut value[..]).is_ok_and(|length| value.get(..length) == Some(b"1"))
    });
    marked || is_unit(dir, std::env::var_os(UNIT).as_deref())
}

/// Whether it is the cgroup of the unit that was named. It is not enough to have inherited the variable: who does so lives in another
/// cgroup.
fn is_unit(dir: &Path, unit: Option<&OsStr>) -> bool {
    unit.is_some_and(|unit| unit.as_encoded_bytes().ends_with(b".service") && dir.file_name() == Some(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

    fn own(dir: &str, path: &str) -> Membership {
        Membership { dir: dir.into(), mount: "/sys/fs/cgroup".into(), path: path.into() }
    }

    #[test]
    fn a_pure_system() {
        let found = locate("0::/system.slice/mcpvisord.service\n", UNIFIED).unwrap();
        assert_eq!(found.dir, Path::new("/sys/fs/cgroup/system.slice/mcpvisord.service"));
    }

    #[test]
    fn a_hybrid_system() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let found = locate("4:memory:/x\n0::/\n", mounts).unwrap();
        assert_eq!(found.dir, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_bind_mount_of_a_part() {
        let mounts = "41 31 0:38 /docker/abc /my\\040cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(locate("0::/docker/abc/x", mounts).unwrap().dir, Path::new("/my cgroup/x"));
        assert!(locate("0::/docker/abcd", mounts).is_err());
    }

    #[test]
    fn none_at_all() {
        assert!(locate("4:memory:/\n", UNIFIED).unwrap_err().contains("no cgroup of version 2"));
        assert!(locate("0::/\n", "1 2 0:1 / / rw - ext4 x rw").unwrap_err().contains("mounted"));
        assert!(locate("0::/../x\n", UNIFIED).unwrap_err().contains("namespace"));
    }

    #[test]
    fn what_systemd_delegated_is_ours() {
        let unit = own("/sys/fs/cgroup/system.slice/m.service", "/system.slice/m.service");
        let place = choose(&unit, false, |dir| dir.ends_with("m.service"), true).unwrap();
        assert!(place.delegated && place.inside);
        assert!(choose(&unit, false, |_| false, true).unwrap_err().contains("Delegate=yes"));
    }

    #[test]
    fn a_subgroup_of_a_delegated_unit_means_the_unit_itself() {
        let group = own("/sys/fs/cgroup/system.slice/m.service/main", "/system.slice/m.service/main");
        let parent = |dir: &Path| dir.ends_with("m.service");
        let place = choose(&group, false, parent, true).unwrap();
        assert_eq!((place.path.as_str(), place.inside), ("/system.slice/m.service", false));
        assert!(choose(&group, true, parent, true).is_err(), "a private daemon stays below its own");
        // A plain unit of a user's systemd, whose own unit is delegated.
        let app = own("/sys/fs/cgroup/user@1.service/app.scope", "/user@1.service/app.scope");
        assert!(choose(&app, false, |dir| dir.ends_with("user@1.service"), true).is_err());
    }

    #[test]
    fn a_users_unit_says_that_it_is_delegated() {
        let dir = Path::new("/sys/fs/cgroup/user@1.service/app.slice/m.service");
        assert!(is_unit(dir, Some(OsStr::new("m.service"))));
        assert!(!is_unit(dir, Some(OsStr::new("other.service"))));
        assert!(!is_unit(&dir.join("mcpvisor-0/s-1/v-0-1"), Some(OsStr::new("m.service"))));
        assert!(!is_unit(Path::new("/sys/fs/cgroup/x"), Some(OsStr::new("x"))));
        assert!(!is_unit(dir, None));
    }

    #[test]
    fn without_systemd_our_own_is_ours() {
        let root = own("/sys/fs/cgroup", "/");
        let place = choose(&root, true, |_| false, false).unwrap();
        assert_eq!((place.path.as_str(), place.delegated), ("", false));
    }
}
