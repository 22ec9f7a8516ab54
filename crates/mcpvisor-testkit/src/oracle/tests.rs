//! Each test plants a leak of one kind and shows that the oracle sees it, and by which sense.
use super::*;
use crate::process::{Process, Signal};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

const SHORT: Duration = Duration::from_millis(400);

/// The senses by which the only leak, a process, was found.
fn senses(leaks: &[Leak]) -> BTreeSet<Sense> {
    match leaks {
        [Leak::Process { senses, .. }] => senses.clone(),
        other => panic!("not one process: {}", Leak::describe(other)),
    }
}

/// Ends a scene and shows that nothing is left of it.
fn clean_up(scene: &Arc<Scene>) {
    scene.sightings().end_all(scene);
    let leaks: Vec<Leak> = scene
        .leaks(crate::SOON)
        .into_iter()
        .filter(|leak| !matches!(leak, Leak::Cgroup(_) | Leak::Socket(_)))
        .collect();
    assert!(leaks.is_empty(), "{}", Leak::describe(&leaks));
}

/// Starts something in the background of a shell that then leaves: an orphan.
fn orphan(scene: &Scene, shell: &str) {
    let output = scene.command("sh").arg("-c").arg(shell).output();
    assert_eq!(output.status, 0, "{output:?}");
}

#[test]
fn nothing_is_seen_where_nothing_is_left() {
    let scene = Scene::new();
    orphan(&scene, "sleep 0.05 >/dev/null 2>&1 &");
    assert_eq!(scene.leaks(crate::SOON), vec![]);
}

#[test]
fn an_orphan_is_seen_by_its_marker() {
    let scene = Scene::new();
    orphan(&scene, "sleep 300 >/dev/null 2>&1 &");
    assert!(senses(&scene.leaks(SHORT)).contains(&Sense::Marker));
    clean_up(&scene);
}

#[test]
fn an_orphan_without_environment_in_a_session_of_its_own_is_seen_by_its_cgroup() {
    let scene = Scene::new();
    if !scene.has_cgroup() {
        eprintln!("left out: this machine gives us no cgroups");
        return;
    }
    orphan(&scene, "env -i setsid sleep 300 >/dev/null 2>&1 &");
    let senses = senses(&scene.leaks(SHORT));
    assert!(senses.contains(&Sense::Cgroup) && !senses.contains(&Sense::Marker), "{senses:?}");
    clean_up(&scene);
}

#[test]
fn an_orphan_that_was_seen_with_its_parent_is_seen_by_its_ancestry() {
    let scene = Scene::new();
    // The child gets rid of its marker; its parent lives until the scene was looked at.
    let mut parent = scene.command("sh").arg("-c").arg("env -i sleep 300 & read line").spawn();
    crate::eventually("the child", crate::SOON, || {
        scene.sightings().look(&scene, true);
        scene.sightings().living().len() == 2
    });
    parent.signal(Signal::KILL);
    parent.wait(crate::SOON);
    let senses = senses(&scene.leaks(SHORT));
    assert!(senses.contains(&Sense::Ancestry) && !senses.contains(&Sense::Marker), "{senses:?}");
    clean_up(&scene);
}

/// An instance id that no other test has, of this process or another.
fn instance(which: char) -> String {
    format!("{which}{:015x}", std::process::id())
}

#[test]
fn a_process_of_a_daemon_of_the_scene_is_seen_by_its_scope() {
    let scene = Scene::new();
    let instance = instance('a');
    scene.know_instance(&instance);
    orphan(&scene, &format!("env -i MCPVISOR_SCOPE={instance}/1000-1 setsid sleep 300 >/dev/null 2>&1 &"));
    assert!(senses(&scene.leaks(SHORT)).contains(&Sense::Scope));
    clean_up(&scene);
}

#[test]
fn a_process_of_another_daemon_is_not_seen_by_its_scope() {
    let (scene, other) = (Scene::new(), Scene::new());
    scene.know_instance(&instance('b'));
    orphan(
        &other,
        &format!("env -i MCPVISOR_SCOPE={}/1000-1 setsid sleep 300 >/dev/null 2>&1 &", instance('c')),
    );
    assert_eq!(scene.leaks(SHORT), vec![]);
    clean_up(&other);
}

#[test]
fn a_noted_process_is_seen() {
    let (scene, other) = (Scene::new(), Scene::new());
    // A scene begins with its first process: numbers that are older are not believed.
    orphan(&scene, "true");
    let stranger = other.command("sleep").arg("300").without_env(MARKER).spawn();
    std::fs::write(scene.pids_file(), format!("helper {}\n", stranger.pid()))
        .expect("a file in the scene's folder");
    assert!(senses(&scene.leaks(SHORT)).contains(&Sense::Noted));
    drop(stranger);
    clean_up(&scene);
}

/// A process that stands for a daemon, and has said that it is ready.
fn stand_in(scene: &Scene, python: &str) -> Process {
    let ready = scene.path("ready");
    let text = format!(
        "import os, sys, time\n{python}\nopen({:?}, 'w').close()\ntime.sleep(300)",
        ready.to_string_lossy()
    );
    let daemon = scene.command("python3").arg("-c").arg(text).spawn();
    crate::eventually("the stand-in", crate::SOON, || ready.exists());
    daemon
}

#[test]
fn a_zombie_of_a_daemon_is_seen() {
    let scene = Scene::new();
    let daemon = stand_in(&scene, "if os.fork() == 0: os._exit(0)");
    let spared = Spared { daemon: Some((daemon.pid(), 1000)), running: true };
    let leaks = scene.wait_for_none(&spared, SHORT);
    assert!(
        matches!(leaks[..], [Leak::Zombie { parent, .. }] if parent == daemon.pid()),
        "{}",
        Leak::describe(&leaks)
    );
    drop(daemon);
    clean_up(&scene);
}

#[test]
fn growth_of_descriptors_is_seen() {
    let scene = Scene::new();
    let go = scene.path("go");
    let grow = format!(
        "def grow():\n  while not os.path.exists({:?}): time.sleep(0.01)\n  os.pipe()",
        go.to_string_lossy()
    );
    let daemon =
        stand_in(&scene, &format!("import threading\n{grow}\nthreading.Thread(target=grow).start()"));
    let before = procfs::descriptors(daemon.pid()).len();
    let spared = Spared { daemon: Some((daemon.pid(), before)), running: true };
    assert_eq!(scene.wait_for_none(&spared, SHORT), vec![]);
    std::fs::write(&go, "").expect("a file in the scene's folder");
    crate::eventually("the growth", crate::SOON, || procfs::descriptors(daemon.pid()).len() == before + 2);
    let leaks = scene.wait_for_none(&spared, SHORT);
    assert!(matches!(leaks[..], [Leak::Descriptors { .. }]), "{}", Leak::describe(&leaks));
    drop(daemon);
    clean_up(&scene);
}

#[test]
fn a_keeper_that_outlives_its_session_is_seen_and_a_guardian_is_not() {
    let scene = Scene::new();
    let daemon = stand_in(
        &scene,
        "for name in ('keeper', 'guardian'):\n  if os.fork() == 0: os.execvp('sh', ['sh', '-c', 'sleep 300; true', name])",
    );
    let spared = Spared { daemon: Some((daemon.pid(), 1000)), running: true };
    crate::eventually("both children", crate::SOON, || procfs::children(daemon.pid()).len() == 2);
    let leaks = scene.wait_for_none(&spared, SHORT);
    let told = Leak::describe(&leaks);
    assert!(told.contains(" keeper ") && !told.contains(" guardian "), "{told}");
    drop(daemon);
    clean_up(&scene);
}

#[test]
fn a_left_cgroup_is_seen() {
    let scene = Scene::new();
    let Some(cgroup) = &scene.cgroup else { return eprintln!("left out: this machine gives us no cgroups") };
    let left = cgroup.dir().join("mcpvisor-x");
    std::fs::create_dir(&left).expect("a cgroup of ours");
    assert_eq!(scene.leaks(SHORT), vec![Leak::Cgroup(left.clone())]);
    // While a daemon runs its own folder is right, and a session's is not.
    let spared = Spared { daemon: None, running: true };
    assert_eq!(scene.wait_for_none(&spared, SHORT), vec![]);
    std::fs::create_dir(left.join("s-1")).expect("a cgroup of ours");
    assert_eq!(scene.wait_for_none(&spared, SHORT), vec![Leak::Cgroup(left.join("s-1"))]);
}

#[test]
fn a_left_socket_is_seen() {
    let scene = Scene::new();
    let path = scene.path("left.sock");
    drop(UnixListener::bind(&path).expect("a socket in the scene's folder"));
    assert_eq!(scene.leaks(SHORT), vec![Leak::Socket(path)]);
}

#[test]
#[should_panic(expected = "1 leaks")]
fn a_scene_that_leaves_a_socket_fails() {
    crate::scene::stage(SHORT * 50, SHORT, |scene| drop(UnixListener::bind(scene.path("left.sock"))));
}

#[test]
#[should_panic(expected = "has not ended within")]
fn a_scene_that_does_not_end_fails() {
    crate::scene_within(SHORT, |scene| {
        let mut process = scene.command("sleep").arg("300").spawn();
        process.wait(Duration::from_secs(600));
    });
}
