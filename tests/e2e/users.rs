//! G40: a system daemon, whose clients are of several users. What one has, the others can't see, touch, or learn of by asking.
//!
//! Played where the tests run as root, since only root can be several users. How the guards were seen to fail: each play asks the same
//! as the owner or as root too, and finds there what it did not find as the stranger.
use crate::support::{assert_closed, on_both, polite};
use mcpvisor_testkit::{
    Containment, Daemon, Invocation, Output, SOON, Scene, Setup, binary, eventually, procfs,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

/// May run commands of their own.
const ANN: u32 = 4_000_101;
const BOB: u32 = 4_000_102;
/// May open profiles alone.
const CID: u32 = 4_000_103;

/// What is Ann's alone.
const KEY: &str = "key-of-ann";
const SECRETS: [&str; 6] =
    [KEY, "environment-of-ann", "stderr-of-ann", "argument-of-ann", "label-of-ann", "tenant-of-ann"];

/// Puts the programs where everybody can run them; false where there is nobody else to be.
fn several(scene: &Scene) -> bool {
    let own = fs::metadata("/proc/self").ok().map(|of| std::os::unix::fs::MetadataExt::uid(&of));
    if own != Some(0) {
        eprintln!("left out: only root can be several users");
        return false;
    }
    open_to_all(scene.dir());
    let (built, program) = (binary("mcpvisor"), scene.path("mcpvisor"));
    if fs::hard_link(&built, &program).is_err() {
        fs::copy(&built, &program).expect("the program can be copied");
    }
    true
}

/// A daemon of root's that everybody may connect to.
fn start(scene: &Arc<Scene>, containment: Containment) -> Option<Daemon> {
    if !several(scene) {
        return None;
    }
    let program = scene.path("mcpvisor");
    let profile = format!(
        "[profiles.p.servers.main]\ncommand = {program:?}\nargs = [\"demo-server\", \"polite\"]\nenv = {{ TOKEN = \"of-the-profile\" }}\n\
         [profiles.held]\nhold = [\"*\"]\n[profiles.held.servers.main]\ncommand = {program:?}\nargs = [\"demo-server\", \"polite\"]\n"
    );
    let setup = Setup::on(containment)
        .quick()
        .daemon("socket_mode = \"0666\"")
        .daemon(&format!("allow_commands = [{ANN}, {BOB}]"))
        .config(&profile);
    let daemon = Daemon::start(scene, &setup);
    open_to_all(daemon.socket().parent().expect("a socket is in a folder"));
    Some(daemon)
}

fn open_to_all(dir: &std::path::Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("the scene is ours");
}

/// The client, run by this user.
fn by<'a>(daemon: &Daemon, scene: &'a Scene, uid: u32, words: &[&str]) -> Invocation<'a> {
    let (id, socket) = (uid.to_string(), daemon.socket().to_string_lossy().into_owned());
    let client = scene.path("mcpvisor").to_string_lossy().into_owned();
    let become_user = ["--reuid", &id, "--regid", &id, "--clear-groups", "--", &client, "--socket", &socket];
    scene.command("setpriv").args(become_user).arg("--json").args(words)
}

fn ask(daemon: &Daemon, scene: &Scene, uid: u32, words: &[&str]) -> Output {
    by(daemon, scene, uid, words).output()
}

/// All that a command has said.
fn said(output: &Output) -> String {
    output.text() + &output.stderr
}

/// Ann's session: one server, with an argument, an environment and words on stderr that are her own.
fn anns(daemon: &Daemon, scene: &Scene) -> Value {
    let program = scene.path("mcpvisor").to_string_lossy().into_owned();
    let script = format!("echo stderr-of-ann >&2; exec {program} demo-server polite");
    let words = [
        "open",
        KEY,
        "--request-id",
        "the-id",
        "--label",
        "label-of-ann=1",
        "--tenant",
        "tenant-of-ann",
        "--",
    ];
    let command = by(daemon, scene, ANN, &words).args(["sh", "-c", &script, "argument-of-ann"]);
    command.env("SECRET", "environment-of-ann").output().ok()
}

fn server_pid(session: &Value) -> u32 {
    let pid = session["servers"][0]["pid"].as_u64().expect("it runs");
    u32::try_from(pid).expect("process numbers are small")
}

/// As whom a process runs: real, effective, saved and of the file system.
fn uids(pid: u32) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default().to_owned();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Everything that can be read of what there is.
const READS: [&[&str]; 12] = [
    &["list"],
    &["ps"],
    &["status"],
    &["events"],
    &["events", "--since", "0"],
    &["events", KEY],
    &["approvals"],
    &["show", KEY],
    &["ps", KEY],
    &["logs", KEY],
    &["tools", KEY],
    &["wait", KEY, "--timeout", "100ms"],
];

on_both! {
    /// No question of a stranger's is answered with anything of Ann's; the same questions of her own and of root's, who names her, are.
    g40_what_another_user_has_is_not_told = |scene, containment| {
        let Some(daemon) = start(scene, containment) else { return };
        let session = anns(&daemon, scene);
        assert_eq!(session["owner"]["uid"], ANN, "{session:#}");
        let pid = server_pid(&session);
        assert_eq!(uids(pid), vec![ANN.to_string(); 4], "her commands are run as her");
        eventually("her server's words", SOON, || said(&ask(&daemon, scene, ANN, &["logs", KEY])).contains("stderr-of-ann"));
        let (mut all_of_bob, mut all_of_ann, mut all_of_root) = (String::new(), String::new(), String::new());
        let user = ANN.to_string();
        for words in READS {
            // A key that he names himself comes back in the error.
            let told = said(&ask(&daemon, scene, BOB, words));
            all_of_bob += &if words.contains(&KEY) { told.replace(KEY, "the key") } else { told };
            all_of_ann += &said(&ask(&daemon, scene, ANN, words));
            all_of_root += &said(&daemon.command(scene, words).args(["--user", &user]).output());
        }
        let number = format!("\"pid\":{pid}");
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        for word in SECRETS.iter().copied().chain([user.as_str()]) {
            assert!(!all_of_bob.contains(word), "{word} is told to a stranger: {all_of_bob}");
        }
        assert!(!squeezed(&all_of_bob).contains(&number), "{all_of_bob}");
        for (who, text) in [("ann", &all_of_ann), ("root", &all_of_root)] {
            assert!(squeezed(text).contains(&number), "{who} is not told what is hers: {text}");
            // The environment is told to nobody at all.
            for word in ["stderr-of-ann", "argument-of-ann", "label-of-ann", "tenant-of-ann"] {
                assert!(text.contains(word), "{who} is not told {word}: {text}");
            }
        }
        // Not even how many there are, and neither by the numbers that his own get.
        let status = ask(&daemon, scene, BOB, &["status"]).ok();
        assert_eq!((&status["sessions"]["used"], &status["processes"]), (&json!(0), &json!(0)), "{status:#}");
        assert_eq!(status["counters"], json!({}), "{status:#}");
        assert_eq!(daemon.cli(&["status"]).ok()["sessions"]["used"], 1);
        assert_eq!(daemon.cli(&["list"]).ok()["sessions"], json!([]), "root has none itself");
        let everyone = daemon.cli(&["list", "--all-users"]).ok();
        assert_eq!(everyone["sessions"][0]["key"], KEY, "{everyone:#}");
        for words in [&["list", "--all-users"][..], &["ps", "--all-users"], &["approvals", "list", "--all-users"]] {
            let refused = ask(&daemon, scene, BOB, words).fails(7);
            assert_eq!(refused["kind"], "permission_denied", "{refused:#}");
        }
        assert_closed(&ask(&daemon, scene, ANN, &["close", KEY]).ok()["results"][0], containment);
        daemon.finish();
    };

    /// Whatever a stranger does with Ann's key is done to nothing, leaves no trace with her, and tells the same of a key that there is and
    /// of one that there is not.
    g40_what_another_user_has_can_not_be_touched = |scene, containment| {
        let Some(daemon) = start(scene, containment) else { return };
        let session = anns(&daemon, scene);
        let seen = |uid| {
            let events = ask(&daemon, scene, uid, &["events", "--since", "0"]).text();
            let mut shown = ask(&daemon, scene, uid, &["show", KEY]).json();
            // How long it has been idle is another at each look.
            if let Some(members) = shown.as_object_mut() {
                members.retain(|name, _| !name.contains("idle"));
            }
            (events, shown["generation"].clone(), shown["servers"][0]["pid"].clone(), shown["state"].clone())
        };
        let before = seen(ANN);
        let at = format!("{KEY}@{}", session["generation"]);
        let one_server = format!("{KEY}/main");
        let touches: [(&[&str], i32); 15] = [
            (&["close", KEY], 4),
            (&["close", KEY, "--now"], 4),
            (&["close", &at], 4),
            (&["wait", KEY], 4),
            (&["wait", &at], 4),
            (&["kill", KEY], 4),
            (&["show", &at], 4),
            (&["attach", KEY], 4),
            (&["attach", &one_server], 4),
            (&["call", KEY, "echo", "message=x"], 4),
            (&["logs", &one_server], 4),
            (&["server", "remove", KEY, "main"], 4),
            (&["server", "restart", KEY, "main"], 4),
            (&["server", "add", KEY, "more", "--", "true"], 4),
            (&["open", "below", "--parent", KEY, "--", "true"], 4),
        ];
        let user = ANN.to_string();
        for (words, status) in touches {
            let nobodys: Vec<String> = words.iter().map(|word| word.replace(KEY, "nobodys-key")).collect();
            let nobodys: Vec<&str> = nobodys.iter().map(String::as_str).collect();
            let of = |words: &[&str], more: &[&str]| {
                let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
                let words = [&words[..at], more, &words[at..]].concat();
                let told = ask(&daemon, scene, BOB, &words);
                (told.status, said(&told).replace(KEY, "nobodys-key"))
            };
            let told = of(words, &[]);
            assert_eq!(told.0, status, "{words:?}: {}", told.1);
            assert_eq!(told, of(&nobodys, &[]), "{words:?}: one that there is and one that there is not are told apart");
            let named = of(words, &["--user", &user]);
            assert_eq!(named.0, 7, "{words:?} --user: {}", named.1);
            assert_eq!(named, of(&nobodys, &["--user", &user]), "{words:?} --user");
        }
        for words in [&["close", "--all"][..], &["close", "--label", "label-of-ann=1"], &["close", "--tenant", "tenant-of-ann"]] {
            let told = ask(&daemon, scene, BOB, words);
            assert!(!said(&told).contains(KEY), "{words:?}: {told:?}");
        }
        for words in [&["drain"][..], &["reload"], &["shutdown"]] {
            assert_eq!(ask(&daemon, scene, BOB, words).fails(7)["kind"], "permission_denied");
        }
        assert_eq!(seen(ANN), before, "something of it was noticed, or done");
        // The key is free for him, as is the id of her request, and his own is another session; a close of it leaves hers.
        let program = scene.path("mcpvisor").to_string_lossy().into_owned();
        let his = by(&daemon, scene, BOB, &["open", KEY, "--request-id", "the-id", "--"]).args([&program, "demo-server", "polite"]).output().ok();
        assert_eq!(his["owner"]["uid"], BOB);
        assert_eq!(uids(server_pid(&his)), vec![BOB.to_string(); 4]);
        assert_eq!(his["generation"], session["generation"], "his numbers are counted by themselves");
        assert_closed(&ask(&daemon, scene, BOB, &["close", "--all"]).ok()["results"][0], containment);
        assert_eq!(seen(ANN), before);
        // Root can, by naming her.
        let closed = daemon.cli(&["close", KEY, "--user", &user]).ok();
        assert_closed(&closed["results"][0], containment);
        daemon.finish();
    };

    /// Commands of a client's own are run for who is allowed to, as who it is; profiles for everybody, as the session's owner. Held calls are decided by
    /// their owner, or by root that names it.
    g40_whose_commands_are_run_and_as_whom = |scene, containment| {
        let Some(daemon) = start(scene, containment) else { return };
        for words in [&["open", "own", "--", "true"][..], &["open", "own", "--server", "a=true"]] {
            let refused = ask(&daemon, scene, CID, words).fails(7);
            assert_eq!(refused["kind"], "permission_denied", "{refused:#}");
        }
        // Not as anybody else, either.
        let refused = ask(&daemon, scene, ANN, &["open", "own", "--user", &BOB.to_string(), "--", "true"]).fails(7);
        assert_eq!(refused["kind"], "permission_denied", "{refused:#}");
        assert_eq!(daemon.status()["sessions"]["used"], 0, "G9: a refusal leaves nothing");
        let opened = ask(&daemon, scene, CID, &["open", "k", "--profile", "p"]).ok();
        let pid = server_pid(&opened);
        assert_eq!(uids(pid), vec![CID.to_string(); 4], "{opened:#}");
        assert!(procfs::environment(pid).iter().any(|line| line == "TOKEN=of-the-profile"), "its environment is the profile's");
        let added = ask(&daemon, scene, CID, &["server", "add", "k", "more", "--", "true"]).fails(7);
        assert_eq!(added["kind"], "permission_denied", "{added:#}");
        // A call of Cid's that waits for a person is his, and root's.
        ask(&daemon, scene, CID, &["open", "held", "--profile", "held"]).ok();
        let mut calling = by(&daemon, scene, CID, &["call", "held", "echo", "message=hello"]).spawn();
        let held = || ask(&daemon, scene, CID, &["approvals"]).ok()["approvals"].clone();
        eventually("the held call", SOON, || held().as_array().is_some_and(|all| all.len() == 1));
        let id = held()[0]["id"].as_str().expect("it has an id").to_owned();
        assert_eq!(ask(&daemon, scene, ANN, &["approvals"]).ok()["approvals"], json!([]));
        let user = CID.to_string();
        assert_eq!(ask(&daemon, scene, ANN, &["approvals", "approve", &id]).fails(4)["kind"], "not_found");
        let named = ask(&daemon, scene, ANN, &["approvals", "approve", &id, "--user", &user]).fails(7);
        assert_eq!(named["kind"], "permission_denied");
        assert_eq!(held().as_array().map(Vec::len), Some(1), "it is held still");
        daemon.cli(&["approvals", "approve", &id, "--user", &user]).ok();
        assert_eq!(calling.wait(SOON).code(), Some(0));
        assert_eq!(ask(&daemon, scene, CID, &["close", "--all"]).ok()["results"].as_array().map(Vec::len), Some(2));
        daemon.finish();
    };

    /// What the daemon writes down and makes, other users can't read; neither what its processes were started with.
    g40_files_and_processes_are_not_readable = |scene, containment| {
        let Some(daemon) = start(scene, containment) else { return };
        let session = anns(&daemon, scene);
        let dir = daemon.socket().parent().expect("a socket is in a folder").to_owned();
        let notes = daemon.socket().with_extension("sock.sessions");
        assert!(notes.is_dir(), "{} is where sessions are noted", notes.display());
        let environment = format!("/proc/{}/environ", server_pid(&session));
        let look = format!(
            "grep -rsl of-ann {dir} {environment}; cat {environment}; find {notes} -readable 2>/dev/null; true",
            dir = dir.display(),
            notes = notes.display()
        );
        let as_user = |uid: u32| {
            let id = uid.to_string();
            let words = ["--reuid", &id, "--regid", &id, "--clear-groups", "--", "sh", "-c", &look];
            scene.command("setpriv").args(words).output()
        };
        let found = as_user(BOB);
        assert_eq!(found.text(), "", "{found:?}");
        let found = as_user(0).text();
        assert!(found.contains("environment-of-ann") && found.contains(&notes.display().to_string()), "{found}");
        assert_closed(&ask(&daemon, scene, ANN, &["close", KEY]).ok()["results"][0], containment);
        // A start that fails tells its owner why, and nobody else.
        let script = "echo stderr-of-ann >&2; exit 3";
        let failed = by(&daemon, scene, ANN, &["open", KEY, "--"]).args(["sh", "-c", script]).output();
        assert!(said(&failed).contains("stderr-of-ann"), "{failed:?}");
        for words in READS {
            let told = said(&ask(&daemon, scene, BOB, words));
            assert!(!told.contains("stderr-of-ann"), "{words:?}: {told}");
        }
        let again = ask(&daemon, scene, ANN, &["wait", KEY, "--for", "ready"]);
        assert_eq!(again.fails(1)["kind"], "session_failed");
        daemon.finish();
    };

    /// A daemon of root's whose socket is nobody else's is not reached by others.
    g40_a_socket_that_is_not_opened = |scene, containment| {
        if !several(scene) {
            return;
        }
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        open_to_all(daemon.socket().parent().expect("a socket is in a folder"));
        let refused = ask(&daemon, scene, ANN, &["list"]);
        assert_eq!(refused.status, 6, "{refused:?}");
        daemon.command(scene, &["open", "k", "--"]).args(polite()).output().ok();
        daemon.cli(&["close", "k"]).ok();
        daemon.finish();
    };
}
