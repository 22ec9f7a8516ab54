//! Random histories through a configuration that is too large to be walked through.
use crate::action::Action;
use crate::checker::{Violation, replay};
use crate::config::Config;
use crate::rules::{Property, Reached, Witness};
use crate::world::{Context, World};
use mcpvisor_lifecycle::seeded::Bug;

/// A history that has not come to rest after so many steps never will: each script, timer and letter ends.
const LONGEST: usize = 2_000;

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        usize::try_from(bits % end as u64).expect("it is below a usize")
    }
}

/// What became of one history.
#[derive(Debug, Clone)]
pub struct History {
    /// How many things happened.
    pub steps: usize,
    /// A broken rule, if one was met.
    pub violation: Option<Violation>,
    /// What was seen to happen.
    pub reached: Vec<Witness>,
}

/// Follows the history of a seed: at each point one of the things that could happen next, until nothing can.
///
/// The same seed gives the same history. How likely bad luck is differs from seed to seed, so that some histories have much of it early,
/// and others none.
#[must_use]
pub fn wander(config: &Config, bug: Option<Bug>, seed: u64) -> History {
    let reached = Reached::default();
    let asks: Vec<_> = config.asks().collect();
    let context = Context { config, asks: &asks, bug, reached: &reached, story: None };
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let reluctance = 1 + random.below(30);
    let (mut world, mut path, mut choices) = (World::new(&context), Vec::new(), Vec::new());
    loop {
        choices.clear();
        world.choices(&context, &mut choices);
        let Some(action) = pick(&choices, &mut random, reluctance) else { break };
        path.push(action);
        world = world.after(&context, action);
        if path.len() >= LONGEST {
            world.wrong = Some(Property::Rest.broken("a history goes on for ever"));
        }
        if world.wrong.is_some() {
            break;
        }
    }
    let violation = world.wrong.map(|wrong| {
        replay(config, bug, &path).unwrap_or_else(|| Violation {
            wrong,
            story: path[path.len() - 20..].iter().map(|action| format!("{action:?}")).collect(),
        })
    });
    History { steps: path.len(), violation, reached: reached.all() }
}

/// One of the choices; bad luck is taken only once in `reluctance` times that it is drawn, unless nothing else is left.
fn pick(choices: &[Action], random: &mut Random, reluctance: usize) -> Option<Action> {
    if choices.is_empty() {
        return None;
    }
    if choices.iter().all(|choice| choice.is_bad_luck()) {
        // At rest: it may end here.
        return (random.below(4) > 0).then(|| choices[random.below(choices.len())]);
    }
    loop {
        let choice = choices[random.below(choices.len())];
        if !choice.is_bad_luck() || random.below(reluctance) == 0 {
            return Some(choice);
        }
    }
}
