use super::*;

/// A state folder, removed with all that is in it.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("notes-{name}-{}", std::process::id())))
    }

    fn make(&self, instance: &str) -> Notes {
        Notes::make(&self.0, &InstanceId(instance.into()), Some(Path::new("/a/cgroup"))).unwrap()
    }

    /// The folder of a daemon that has died with these files in it.
    fn dead(&self, instance: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let path = self.0.join(instance);
        fs::create_dir_all(&path).unwrap();
        for (name, bytes) in files {
            fs::write(path.join(name), bytes).unwrap();
        }
        path
    }

    fn names(&self) -> Vec<String> {
        former(&self.0).iter().map(|former| former.instance.0.to_string()).collect()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_folder_goes_with_its_last_note() {
    let state = State::new("goes");
    let notes = state.make("aa");
    notes.write("1000-1", "one").unwrap();
    notes.write("1000-1", "is written once").unwrap();
    assert_eq!(fs::read_to_string(state.0.join("aa/s-1000-1")).unwrap(), "one");
    notes.close().unwrap();
    assert!(state.0.join("aa/lock").exists(), "a session is noted");
    notes.remove("1000-1").unwrap();
    notes.remove("1000-1").unwrap();
    notes.close().unwrap();
    assert!(!state.0.exists());
}

#[test]
fn nobody_else_can_look_into_it() {
    let state = State::new("mode");
    let notes = state.make("aa");
    notes.write("1000-1", "one").unwrap();
    let mode = |path: &str| fs::metadata(state.0.join(path)).unwrap().mode() & 0o077;
    assert_eq!([mode(""), mode("aa"), mode("aa/lock"), mode("aa/s-1000-1")], [0; 4]);
}

/// G36: what a dead daemon has noted is read; of the rest nothing is made up.
#[test]
fn g36_what_a_dead_daemon_has_noted_is_read() {
    let state = State::new("read");
    let torn = [0xff, 0xfe];
    state.dead(
        "aa",
        &[
            ("lock", b""),
            ("cgroup", b"/a/cgroup"),
            ("s-1000-1", b"one"),
            ("s-1000-2", &torn),
            ("new-s-1000-3-7", b"o"),
            ("s-x", b""),
        ],
    );
    state.dead("bb", &[]);
    state.dead("not.an.instance", &[("lock", b"")]);
    let mut found = former(&state.0);
    found.sort_by(|a, b| a.instance.cmp(&b.instance));
    let [mut aa, bb] = <[Former; 2]>::try_from(found).unwrap();
    aa.sessions.sort();
    assert_eq!(aa.cgroup.as_deref(), Some(Path::new("/a/cgroup")));
    assert_eq!(aa.sessions, [("1000-1".to_owned(), Some("one".to_owned())), ("1000-2".to_owned(), None)]);
    assert_eq!((bb.cgroup.clone(), bb.sessions.len()), (None, 0));
    bb.close();
    assert!(!state.0.join("bb").exists());
    aa.close();
    assert!(state.0.join("aa/s-1000-1").exists(), "not while it is noted");
    aa.remove("1000-1");
    aa.remove("1000-2");
    fs::remove_file(state.0.join("aa/s-x")).unwrap();
    aa.close();
    assert!(!state.0.join("aa").exists());
}

/// What somebody else has put there is not followed.
#[test]
fn links_are_not_followed() {
    let state = State::new("links");
    let path = state.dead("aa", &[("lock", b"")]);
    fs::write(state.0.join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", path.join("s-1000-1")).unwrap();
    std::os::unix::fs::symlink("aa", state.0.join("bb")).unwrap();
    let found = former(&state.0);
    let [aa] = &found[..] else { panic!("{found:?}") };
    assert_eq!(aa.sessions, [("1000-1".to_owned(), None)]);
}

#[test]
fn without_a_state_folder_there_is_nobody() {
    assert!(State::new("none").names().is_empty());
}
