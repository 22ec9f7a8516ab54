use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// A folder below our own cgroup, or anywhere: flock(2) is the same.
struct Base(std::path::PathBuf);

impl Base {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("claim-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn instance(&self, name: &str) -> std::path::PathBuf {
        self.0.join(format!("{PREFIX}{name}"))
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// G36: what is held is not taken, what is not held is.
#[test]
fn a_lock_goes_with_its_holder() {
    let base = Base::new("holder");
    let held = make(&base.instance("a")).unwrap();
    fs::create_dir(base.instance("b")).unwrap();
    fs::create_dir(base.0.join("other")).unwrap();
    let names = |trees: &[Tree]| trees.iter().map(|tree| tree.path.clone()).collect::<Vec<_>>();
    let dead = abandoned(&base.0);
    assert_eq!(names(&dead), [base.instance("b")]);
    assert!(abandoned(&base.0).is_empty(), "one sweep at a time has it");
    drop(dead);
    drop(held);
    assert_eq!(abandoned(&base.0).len(), 2);
}

/// A name that exists is nobody's to take over.
#[test]
fn an_instance_is_made_once() {
    let base = Base::new("once");
    fs::create_dir(base.instance("a")).unwrap();
    assert_eq!(make(&base.instance("a")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

/// Ends the sweeps, where the test fails too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The race of the making with sweeps: whoever has made its folder has it, whatever sweeps there are meanwhile. Negative control:
/// without the look whether the name still leads to the locked folder, a maker was left with a removed one.
#[test]
fn g36_a_folder_that_is_being_made_is_not_lost_to_sweeps() {
    let base = Base::new("race");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for tree in abandoned(&base.0) {
                        let _ = fs::remove_dir(&tree.path);
                    }
                }
            });
        }
        let _end = Over(&over);
        for _ in 0..2000 {
            let path = base.instance("a");
            let dir = make(&path).unwrap();
            let (held, named) = (fstat(&dir).unwrap(), stat(&path).unwrap());
            assert_eq!(held.st_ino, named.st_ino);
            // Files can be made in it: it is not a removed one.
            fs::create_dir(path.join("s")).unwrap();
            fs::remove_dir(path.join("s")).unwrap();
            fs::remove_dir(&path).unwrap();
        }
    });
}
