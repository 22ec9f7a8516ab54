//! G42: a relay passes every byte, and an endpoint in front of a shared server everything but ids and progress tokens, of generated
//! messages with all that JSON allows, and of every kind of message of all revisions.
mod generate;
mod play;

use generate::Generator;
use mcpvisor_testkit::{scene, scene_within};
use play::{MODERN, Round, as_batches, through_attach, through_relay};
use std::time::Duration;

/// Of six messages each.
const ROUNDS: usize = 167;

fn generated() -> Vec<Round> {
    let mut generator = Generator::new(1);
    (0..ROUNDS).map(|_| generator.round()).collect()
}

#[test]
fn g42_generated_messages_through_a_relay() {
    scene_within(Duration::from_secs(180), |scene| through_relay(scene, "2025-11-25", &generated()));
}

#[test]
fn g42_generated_messages_through_attach() {
    scene_within(Duration::from_secs(180), |scene| through_attach(scene, "2025-11-25", &generated()));
}

#[test]
fn g42_generated_batches_through_attach() {
    scene(|scene| {
        let mut rounds = generated();
        rounds.truncate(50);
        for round in &mut rounds {
            round.said.drain(..2);
            round.replies.clear();
            round.request = round.request.replace("@TOKEN@", "null");
        }
        as_batches(scene, &rounds);
    });
}

/// The rounds that a revision knows; without what only a relay passes, where `shared`.
fn examples(revision: &str, shared: bool) -> Vec<Round> {
    let mut rounds = vec![];
    let mut round = Round::default();
    let mut known = false;
    for line in include_str!("lossless/examples.txt").lines() {
        if let Some(section) = line.strip_prefix("= ") {
            known = if revision == MODERN { section == MODERN } else { section <= revision };
            continue;
        }
        let Some((mark, message)) = line.split_once(' ').filter(|(mark, _)| mark.starts_with(['<', '>']))
        else {
            continue;
        };
        // Only one revision has arrays.
        let batch = message.starts_with('[') && revision != "2025-03-26";
        if !known || batch || (shared && mark.ends_with('!')) {
            continue;
        }
        let (server, method) = (mark.starts_with('<'), message.contains("\"method\":"));
        let (id, message) = (message.contains("\"id\":@ID@"), message.to_owned());
        match (server, id) {
            (true, false) => round.said.push(message),
            (true, true) => {
                round.said.push(message);
                rounds.push(std::mem::take(&mut round));
            }
            (false, true) => round.request = message,
            (false, false) if method => round.before.push(message),
            (false, false) => round.replies.push(message),
        }
    }
    assert!(rounds.len() > 5 && rounds.iter().all(|round| !round.request.is_empty()), "{rounds:#?}");
    rounds
}

macro_rules! revisions {
    ($($name:ident = $revision:expr;)*) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn through_a_relay() {
                    scene(|scene| through_relay(scene, $revision, &examples($revision, false)));
                }

                #[test]
                fn through_attach_too() {
                    scene(|scene| through_attach(scene, $revision, &examples($revision, true)));
                }
            }
        )*
    };
}

revisions! {
    g42_revision_2024_11_05 = "2024-11-05";
    g42_revision_2025_03_26 = "2025-03-26";
    g42_revision_2025_06_18 = "2025-06-18";
    g42_revision_2025_11_25 = "2025-11-25";
    g42_revision_2026_07_28 = MODERN;
}
