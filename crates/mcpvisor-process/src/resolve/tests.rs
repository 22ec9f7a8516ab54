use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A folder with an executable script, a plain file, a folder and a script with a missing interpreter.
fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("mcpvisor-resolve-{}-{name}", std::process::id()));
    fs::create_dir_all(dir.join("sub")).unwrap();
    for (file, text, mode) in [("good", "#! /bin/sh -e\n", 0o755), ("plain", "", 0o644)] {
        fs::write(dir.join(file), text).unwrap();
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(mode)).unwrap();
    }
    dir
}

fn run(program: &str, path: Option<&str>, cwd: &Path) -> Result<Resolved, LaunchError> {
    resolve(Wanted {
        program: CString::new(program).unwrap(),
        path: path.map(|p| p.as_bytes().to_vec()),
        cwd: Cwd::Path(cwd.to_owned()),
    })
}

fn kind(result: Result<Resolved, LaunchError>) -> (LaunchErrorKind, String) {
    let error = result.expect_err("it fails");
    (error.kind, error.message)
}

#[test]
fn names_are_looked_for_in_path_and_paths_are_taken_as_they_are() {
    let dir = folder("found");
    let found = run("good", Some(&format!("/nowhere:{}", dir.display())), Path::new("/")).unwrap();
    assert_eq!(shown(&found.program), format!("{}/good", dir.display()));
    assert_eq!(found.head, Head::Interpreter("/bin/sh".into()));
    assert_eq!(shown(&run("./good", None, &dir).unwrap().program), "./good");
    assert_eq!(shown(&run("good", Some(""), &dir).unwrap().program), "./good");
    assert_eq!(shown(&run("sh", None, &dir).unwrap().program).rsplit('/').next(), Some("sh"));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_is_not_there_and_what_is_no_program() {
    let dir = folder("missing");
    let at = |name: &str| format!("{}/{name}", dir.display());
    let (missing, text) = kind(run("nothing", Some("/a:/b"), &dir));
    assert_eq!(
        (missing, text.as_str()),
        (LaunchErrorKind::NotFound, "nothing: no such program in PATH (/a:/b)")
    );
    assert_eq!(kind(run(&at("nothing"), None, &dir)).0, LaunchErrorKind::NotFound);
    assert_eq!(kind(run(&at("plain/x"), None, &dir)).0, LaunchErrorKind::NotFound);
    assert_eq!(kind(run("", None, &dir)).0, LaunchErrorKind::NotFound);
    let (kind_of_plain, text) = kind(run("plain", Some(&at("")), &dir));
    assert_eq!(kind_of_plain, LaunchErrorKind::NotExecutable);
    assert!(text.contains("chmod +x"), "{text}");
    let (kind_of_folder, text) = kind(run("./sub", None, &dir));
    assert_eq!(kind_of_folder, LaunchErrorKind::NotExecutable);
    assert!(text.contains("is a directory"), "{text}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn directories_that_are_none() {
    let dir = folder("cwd");
    for (name, expected) in [("none", "no such directory"), ("plain", "not a directory")] {
        let (kind, text) = kind(run("sh", None, &dir.join(name)));
        assert_eq!(kind, LaunchErrorKind::Directory);
        assert!(text.ends_with(expected), "{text}");
    }
    let file = OwnedFd::from(fs::File::open(dir.join("plain")).unwrap());
    let wanted = Wanted { program: c"sh".to_owned(), path: None, cwd: Cwd::Fd(file) };
    assert_eq!(kind(resolve(wanted)).0, LaunchErrorKind::Directory);
    fs::remove_dir_all(dir).unwrap();
}
