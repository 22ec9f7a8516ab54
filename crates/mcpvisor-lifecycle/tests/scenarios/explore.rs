//! Tries every order.
use super::checks;
use super::world::{Choice, World};
use mcpvisor_lifecycle::RequestId;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// More states than this are a mistake in the scenario.
const MOST: usize = 50_000;

/// The outcomes that were told apart, with how often each was reached.
pub(crate) type Outcomes = BTreeMap<String, usize>;

struct Explorer<'a> {
    seen: BTreeSet<u64>,
    outcomes: Outcomes,
    path: Vec<Choice>,
    outcome: &'a dyn Fn(&World) -> Result<String, String>,
}

/// Explores every order to its end. `outcome` sums up a history that is at rest, or says what is wrong with it.
pub(crate) fn explore(
    world: &World,
    outcome: &dyn Fn(&World) -> Result<String, String>,
) -> Result<Outcomes, String> {
    let mut explorer =
        Explorer { seen: BTreeSet::new(), outcomes: Outcomes::new(), path: Vec::new(), outcome };
    match explorer.visit(world) {
        Ok(()) => Ok(explorer.outcomes),
        Err(wrong) => Err(format!("{wrong}\nafter {}", replay(world, &explorer.path))),
    }
}

impl Explorer<'_> {
    fn visit(&mut self, world: &World) -> Result<(), String> {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return Ok(());
        }
        assert!(self.seen.len() < MOST, "the scenario has more than {MOST} states");
        let choices = world.choices();
        if choices.is_empty() {
            checks::at_rest(world)?;
            let outcome = (self.outcome)(world)?;
            *self.outcomes.entry(outcome).or_default() += 1;
        }
        for choice in choices {
            let mut next = world.clone();
            self.path.push(choice);
            next.step(choice)?;
            self.visit(&next)?;
            self.path.pop();
        }
        Ok(())
    }
}

/// The history that went wrong, for people.
fn replay(world: &World, path: &[Choice]) -> String {
    let mut world = world.clone();
    let mut told = String::new();
    for choice in path {
        let what = match choice {
            Choice::Letter(route) => format!("{route:?}: {:?}", world.mail[route].front()),
            Choice::Act(client) => format!("client {client}: {:?}", world.clients[*client].front()),
            Choice::Time => format!("time: {:?}", world.next_timeout()),
        };
        told.push_str("\n  ");
        told.push_str(&what);
        if world.step(*choice).is_err() {
            break;
        }
    }
    told
}

/// What a request came to, in one word.
pub(crate) fn word(world: &World, request: u64) -> String {
    let text = match world.replies.get(&RequestId(request)) {
        Some(Ok(answer)) => format!("{answer:?}"),
        Some(Err(refusal)) => format!("{refusal:?}"),
        None if world.cancelled.contains(&RequestId(request)) => "cancelled".to_owned(),
        None => "unsent".to_owned(),
    };
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What several came to, in their order.
pub(crate) fn summary(world: &World, requests: &[u64]) -> String {
    requests.iter().map(|request| word(world, *request)).collect::<Vec<_>>().join(" ")
}

/// The sweep was worth it: it told outcomes apart.
pub(crate) fn assert_told_apart(outcomes: &Outcomes, least: usize) {
    assert!(outcomes.len() >= least, "only {} outcomes were told apart: {outcomes:?}", outcomes.len());
}
