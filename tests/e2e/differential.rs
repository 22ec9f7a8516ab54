//! The same script on a real server and through each way of mcpvisor: `run`, `run --relay` and `attach --exclusive` pass every byte of
//! the server; of a shared server every part of every message passes (G42), and the client's own ids and progress tokens come back.
mod compare;
pub(crate) mod subjects;
mod talk;

use crate::real::LONG;
use compare::{Parts, masked};
use mcpvisor_testkit::{Daemon, Invocation, Scene, Setup, Stdio, scene_within};
use std::sync::Arc;
use std::time::Duration;
use subjects::Subject;
use talk::Talk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Run,
    Relay,
    Exclusive,
    Shared,
}

/// What the server says where mcpvisor is not there.
#[track_caller]
fn direct(scene: &Arc<Scene>, subject: &Subject) -> Vec<String> {
    let command = scene.command(&subject.words[0]).args(&subject.words[1..]);
    let mut talk = Talk::new(Stdio::start(with_env(command, subject)), subject.modern, &subject.root);
    let lines = talk.play(&subject.turns);
    // Some would stay.
    scene.discard();
    talk.server().wait(LONG);
    lines
}

/// What the client hears on this way.
#[track_caller]
fn through(scene: &Arc<Scene>, daemon: &Daemon, way: Way, subject: &Subject) -> Vec<String> {
    let socket = daemon.socket().to_string_lossy().into_owned();
    let client = |words: &[&str]| scene.mcpvisor(&["--socket", &socket]).args(words);
    let open = |mode: &str| {
        if mode == "shared" && subject.told_to_be {
            daemon.command(scene, &["open", "real", "--profile", "modern"]).output_within(LONG).ok();
            return;
        }
        let command = daemon.command(scene, &["open", "real", "--mode", mode, "--"]).args(&subject.words);
        with_env(command, subject).output_within(LONG).ok();
    };
    let command = match way {
        Way::Run => with_env(client(&["run", "--"]).args(&subject.words), subject),
        Way::Relay => with_env(client(&["run", "--relay", "--"]).args(&subject.words), subject),
        Way::Exclusive => {
            open("exclusive");
            client(&["attach", "real", "--exclusive"])
        }
        Way::Shared => {
            open("shared");
            client(&["attach", "real"])
        }
    };
    let mut talk = Talk::new(Stdio::start(command), subject.modern, &subject.root);
    let lines = talk.play(&subject.turns);
    talk.server().close_stdin();
    talk.server().wait(LONG);
    if way == Way::Shared {
        daemon.cli(&["close", "real"]).ok();
    }
    daemon.assert_at_rest();
    lines
}

fn with_env<'a>(command: Invocation<'a>, subject: &Subject) -> Invocation<'a> {
    subject.env.iter().fold(command, |command, (name, value)| command.env(name, value))
}

/// `subject` makes what the server works on anew for each conversation.
fn same_on_every_way(subject: fn(&Scene) -> Subject) {
    scene_within(Duration::from_secs(300), move |scene| {
        let hear = |way: Option<(&Daemon, Way)>| {
            let subject = subject(scene);
            let lines = match way {
                None => direct(scene, &subject),
                Some((daemon, way)) => through(scene, daemon, way, &subject),
            };
            let masked = lines.iter().map(|line| masked(line, subject.masks));
            let (lines, hidden): (Vec<String>, Vec<usize>) = masked.unzip();
            let hidden: usize = hidden.iter().sum();
            assert!(hidden <= subject.hidden_at_most, "{hidden} bytes are hidden");
            lines
        };
        let first = hear(None);
        assert_same(&hear(None), &first, "a second direct conversation");
        let timeouts = "[timeouts]\nstart = \"60s\"\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"";
        let words = subject(scene).words;
        let profile = format!(
            "[profiles.modern.servers.main]\nera = \"modern\"\ncommand = {:?}\nargs = {:?}",
            words[0],
            &words[1..]
        );
        let daemon = Daemon::start(scene, &Setup::new().config(timeouts).config(&profile));
        for way in [Way::Run, Way::Relay, Way::Exclusive] {
            assert_same(&hear(Some((&daemon, way))), &first, &format!("{way:?}"));
        }
        let (shared, direct) = (Parts::of(&hear(Some((&daemon, Way::Shared)))), Parts::of(&first));
        for (id, answer) in &direct.answers {
            assert_eq!(shared.answers.get(id), Some(answer), "the answer to {id}");
        }
        assert_eq!(shared, direct);
        daemon.finish();
    });
}

/// Line by line, so that a difference can be read.
#[track_caller]
fn assert_same(heard: &[String], direct: &[String], through: &str) {
    for (number, (line, wanted)) in heard.iter().zip(direct).enumerate() {
        assert_eq!(line, wanted, "line {number} of {through}");
    }
    assert_eq!(heard.len(), direct.len(), "lines of {through}");
}

macro_rules! servers {
    ($($name:ident;)*) => {
        $(
            #[test]
            fn $name() {
                same_on_every_way(subjects::$name);
            }
        )*
    };
}

servers! {
    everything;
    filesystem;
    memory;
    thinking;
    time;
    time_modern;
    git;
    modern;
    playwright;
    devtools;
}
