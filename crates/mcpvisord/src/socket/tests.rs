use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn refused(path: &Path) -> String {
    let error = Listening::at(path, 0o600).unwrap_err();
    format!("{error}; {}", error.help.as_deref().unwrap_or_default())
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_folder_is_made_the_socket_is_private_and_nothing_stays() {
    let above = folder();
    let path = above.path().join("mcpvisor/control.sock");
    let listening = Listening::at(&path, 0o600).unwrap();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path), 0o600);
    UnixStream::connect(&path).unwrap();
    drop(listening);
    assert!(names(path.parent().unwrap()).is_empty());
}

#[test]
fn a_socket_for_everybody_can_be_reached_by_everybody() {
    let above = folder();
    let path = above.path().join("mcpvisor/control.sock");
    let _listening = Listening::at(&path, 0o666).unwrap();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o755);
    assert_eq!(mode(&path), 0o666);
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let folder = folder();
    let path = folder.path().join("s");
    let listening = Listening::at(&path, 0o600).unwrap();
    let text = refused(&path);
    assert!(text.contains(&format!("another daemon (pid {}) already serves", std::process::id())), "{text}");
    assert!(text.contains("--socket"), "{text}");
    UnixStream::connect(&path).unwrap();
    drop(listening);
    drop(Listening::at(&path, 0o600).unwrap());
}

#[test]
fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
    let folder = folder();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Listening::at(&path, 0o600).unwrap());
    let other = UnixListener::bind(&path).unwrap();
    let text = refused(&path);
    assert!(text.contains("another program already serves"), "{text}");
    assert!(path.exists(), "the other's socket is left alone");
    drop(other);
}

#[test]
fn a_lock_file_that_was_left_is_no_lock() {
    let folder = folder();
    let path = folder.path().join("s");
    std::fs::write(folder.path().join("s.lock"), "99999\n").unwrap();
    drop(Listening::at(&path, 0o600).unwrap());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn of_many_that_start_at_once_exactly_one_serves() {
    let folder = folder();
    let path = folder.path().join("s");
    for _ in 0..20 {
        // Left by one that was killed.
        drop(UnixListener::bind(&path).unwrap());
        let barrier = std::sync::Barrier::new(8);
        let served = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                let listening = Listening::at(&path, 0o600);
                // Nobody lets go before all have tried.
                barrier.wait();
                listening.is_ok()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(served, 1);
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn a_folder_that_others_can_write_is_refused_with_the_mend() {
    let folder = folder();
    for mode in [0o777, 0o1777, 0o770, 0o707] {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let text = refused(&folder.path().join("s"));
        assert!(text.contains("others can write to the folder") && text.contains("chmod go-w"), "{text}");
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn other_wrong_places_are_refused_with_their_reason() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    for (path, reason) in [
        (at("missing/below/s"), "is not there"),
        (at("file/s"), "is not a folder"),
        (at("file"), "is not a socket"),
        (at(&"x".repeat(120)), "too long"),
        (PathBuf::from("/"), "not the path of a file"),
    ] {
        let text = refused(&path);
        assert!(text.contains(reason), "{text}");
    }
    assert_eq!(names(folder.path()), ["file"]);
    std::os::unix::fs::symlink(at("elsewhere"), at("t.lock")).unwrap();
    assert!(refused(&at("t")).contains("lock"));
    assert!(!at("elsewhere").exists(), "no link is followed");
}

/// G36: daemons of one socket have a folder for their notes in common, also where systemd makes the socket.
#[test]
fn g36_notes_lie_next_to_the_socket() {
    let above = folder();
    let path = above.path().join("control.sock");
    let made = Listening::at(&path, 0o600).unwrap();
    let expected = Some(above.path().join("control.sock.sessions"));
    assert_eq!(made.state(), expected);
    drop(made);
    let passed = Listening { listener: Some(UnixListener::bind(&path).unwrap()), file: None };
    assert_eq!(passed.state(), expected);
    let (nameless, _other) = UnixStream::pair().unwrap();
    let nameless = Listening { listener: Some(UnixListener::from(OwnedFd::from(nameless))), file: None };
    assert_eq!(nameless.state(), None);
}

/// A child that a killed daemon was starting has copies of its lock and its listener for a moment.
#[test]
fn what_a_killed_daemons_child_still_holds_is_waited_for() {
    let folder = folder();
    let path = folder.path().join("s");
    let listening = Listening::at(&path, 0o600).unwrap();
    // Of a daemon that lives nobody waits for the end.
    let begin = Instant::now();
    refused(&path);
    assert!(begin.elapsed() < LETTING_GO / 2, "{} ms", begin.elapsed().as_millis());
    // No process ever has this number.
    std::fs::write(lock_of(&path), i32::MAX.to_string()).unwrap();
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::spawn({
        let path = path.clone();
        move || answer.send(Listening::at(&path, 0o600).map(drop))
    });
    // Without the patience it is refused by now.
    assert!(answered.recv_timeout(Duration::from_millis(200)).is_err());
    drop(listening);
    answered.recv().unwrap().unwrap();
    // What is never let go of is not waited for without end.
    let _held = Listening::at(&path, 0o600).unwrap();
    std::fs::write(lock_of(&path), i32::MAX.to_string()).unwrap();
    let begin = Instant::now();
    assert!(refused(&path).contains("already serves"));
    assert!(begin.elapsed() >= LETTING_GO);
}
