//! All states of a configuration, by stateright.
use crate::action::Action;
use crate::asks::Ask;
use crate::config::Config;
use crate::rules::{Property, Reached, Witness, Wrong};
use crate::world::{Context, World};
use mcpvisor_lifecycle::seeded::Bug;
use stateright::{Checker, HasDiscoveries, Model};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A configuration, perhaps with a bug, as stateright takes it.
struct Checked {
    config: Config,
    asks: Vec<(usize, Ask)>,
    bug: Option<Bug>,
    /// The witnesses that were seen, as bits. Not `sometimes` properties: those are looked at in states, and most witnesses are steps; and
    /// stateright copies the path anew each time that one holds again.
    reached: Arc<Reached>,
}

impl Checked {
    fn new(config: &Config, bug: Option<Bug>, reached: &Arc<Reached>) -> Self {
        Self { config: config.clone(), asks: config.asks().collect(), bug, reached: Arc::clone(reached) }
    }

    fn context(&self) -> Context<'_> {
        Context { config: &self.config, asks: &self.asks, bug: self.bug, reached: &self.reached, story: None }
    }
}

impl Model for Checked {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.context())]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        state.choices(&self.context(), actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        Some(last.after(&self.context(), action))
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        /// Stateright takes plain functions: one for each place in the list.
        fn holds<const PLACE: usize>(_: &Checked, state: &World) -> bool {
            state.wrong.is_none_or(|wrong| wrong.property != Property::ALL[PLACE])
        }
        let all: [fn(&Self, &World) -> bool; Property::ALL.len()] = [
            holds::<0>,
            holds::<1>,
            holds::<2>,
            holds::<3>,
            holds::<4>,
            holds::<5>,
            holds::<6>,
            holds::<7>,
            holds::<8>,
            holds::<9>,
            holds::<10>,
            holds::<11>,
            holds::<12>,
            holds::<13>,
            holds::<14>,
            holds::<15>,
            holds::<16>,
            holds::<17>,
            holds::<18>,
        ];
        let named = Property::ALL.into_iter().zip(all);
        named.map(|(property, holds)| stateright::Property::always(property.name(), holds)).collect()
    }
}

/// A broken rule, with the shortest way there that was met.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What is broken.
    pub wrong: Wrong,
    /// The history, one line for each thing that happened, and indented what the machines did.
    pub story: Vec<String>,
}

/// What became of a configuration.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How many different states were met.
    pub states: usize,
    /// The longest of the shortest ways.
    pub depth: usize,
    /// A broken rule, if one was met. The walk ends there.
    pub violation: Option<Violation>,
    /// What was seen to happen.
    pub reached: Vec<Witness>,
}

/// Walks through all states of a configuration on so many threads, until all are seen or a rule is broken.
///
/// The walk ends at any failure. Stateright's default would go on until every property has failed, and overwrite the path of the
/// first failure by later ones.
#[must_use]
pub fn check(config: &Config, threads: usize) -> Outcome {
    let reached = Arc::new(Reached::default());
    let model = Checked::new(config, None, &reached).checker();
    let checker = model.threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let shortest =
        checker.discoveries().into_values().map(stateright::Path::into_actions).min_by_key(Vec::len);
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        violation: shortest.and_then(|actions| replay(config, None, &actions)),
        reached: reached.all(),
    }
}

/// Walks through the states of a configuration whose machines carry a bug, until it breaks this property; with the number of states
/// that were met. On one thread, so that the same history is found each time.
#[must_use]
pub fn find(config: &Config, bug: Bug, property: Property) -> (Option<Violation>, usize) {
    let reached = Arc::new(Reached::default());
    let wanted = HasDiscoveries::AllOf(BTreeSet::from([property.name()]));
    let checker = Checked::new(config, Some(bug), &reached).checker().finish_when(wanted).spawn_bfs().join();
    let found = checker.discovery(property.name()).map(stateright::Path::into_actions);
    (found.and_then(|actions| replay(config, Some(bug), &actions)), checker.unique_state_count())
}

/// Follows a history again, and writes it down; none where no rule is broken.
pub(crate) fn replay(config: &Config, bug: Option<Bug>, actions: &[Action]) -> Option<Violation> {
    let (reached, story) = (Reached::default(), RefCell::new(Vec::new()));
    let asks: Vec<_> = config.asks().collect();
    let context = Context { config, asks: &asks, bug, reached: &reached, story: Some(&story) };
    let mut world = World::new(&context);
    for action in actions {
        context.tell(|| world.words(&context, *action));
        world = world.after(&context, *action);
    }
    world.wrong.map(|wrong| Violation { wrong, story: story.into_inner() })
}
