//! Carries out once what is asked for several times: drives the machine of request ids.
//!
//! No actor: a step takes no time, and nobody waits in it. The work of an id is a task of its own, which no requester's end stops
//! unless the machine says so.
use crate::clock::Clock;
use crate::record::lock;
use mcpvisor_lifecycle::repeats::{
    Name, NotRepeated, Repeats as Machine, RepeatsConfig, RepeatsEffect, RepeatsEvent, Work,
};
use mcpvisor_lifecycle::{Moment, RequestId, Uid};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// A request that has an id.
#[derive(Debug, Clone)]
pub struct Repeat {
    /// Whose id it is.
    pub owner: Uid,
    /// The id; its length is bounded by the caller.
    pub id: Arc<str>,
    /// A digest of all that it asks for.
    pub digest: u64,
    /// It is not given up where nobody waits for it any more.
    pub goes_on: bool,
    /// When the requester's patience ends.
    pub deadline: Option<Instant>,
}

/// How a requester has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Without a word: it may come back.
    Vanished,
    /// It said that it wants no answer.
    Cancelled,
}

/// Takes back what was done, where nobody has heard of it.
pub type Undo = Box<dyn FnOnce() + Send>;

/// What came of the work.
pub struct Done<A> {
    /// The answer.
    pub answer: A,
    /// It is remembered. What has left nothing is not.
    pub keep: bool,
    /// Takes it back.
    pub undo: Option<Undo>,
}

/// Why a request with an id has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// It is not carried out.
    Refused(NotRepeated),
    /// What carried it out broke.
    Broke,
}

/// The ids that are known, with their answers. Cheap to clone.
pub struct Repeats<A>(Arc<Shared<A>>);

impl<A> Clone for Repeats<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<A> {
    clock: Clock,
    state: Mutex<State<A>>,
}

struct State<A> {
    machine: Machine,
    next: RequestId,
    askers: HashMap<RequestId, oneshot::Sender<Result<A, NoAnswer>>>,
    works: HashMap<Work, Held<A>>,
    alarm: Option<(Moment, AbortHandle)>,
}

enum Held<A> {
    Running(AbortHandle),
    Done { answer: Option<A>, undo: Option<Undo> },
}

/// What is done when the state is no longer locked.
type Later = Vec<Undo>;

impl<A: Clone + Send + 'static> Repeats<A> {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(config: RepeatsConfig) -> Self {
        let state = State {
            machine: Machine::new(config),
            next: RequestId(0),
            askers: HashMap::new(),
            works: HashMap::new(),
            alarm: None,
        };
        Self(Arc::new(Shared { clock: Clock::start(), state: Mutex::new(state) }))
    }

    /// New bounds; they hold from now on.
    pub fn reconfigure(&self, config: RepeatsConfig) {
        self.0.step(RepeatsEvent::Reconfigure(config));
    }

    /// Carries out `work`, or gives the answer of the first request with this id, when there is one. Dropping the future gives the
    /// answer up, and the work too where nobody else waits for it; `gone` says how the requester has gone, if it has.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    pub async fn once(
        &self,
        repeat: Repeat,
        gone: impl Fn() -> Option<Gone>,
        work: impl Future<Output = Done<A>> + Send + 'static,
    ) -> Result<A, NoAnswer> {
        let (sender, answer) = oneshot::channel();
        let asker = self.0.ask(repeat, sender, work);
        let mut leaving = Leaving { shared: &self.0, asker, gone: &gone, taken: false };
        let answer = answer.await.unwrap_or(Err(NoAnswer::Broke));
        // An answer that came too late for its requester is nobody's.
        leaving.taken = gone().is_none();
        answer
    }
}

/// Tells that a requester has its answer, or has gone.
struct Leaving<'a, A: Clone + Send + 'static, G: Fn() -> Option<Gone>> {
    shared: &'a Arc<Shared<A>>,
    asker: RequestId,
    gone: &'a G,
    taken: bool,
}

impl<A: Clone + Send + 'static, G: Fn() -> Option<Gone>> Drop for Leaving<'_, A, G> {
    fn drop(&mut self) {
        let asker = self.asker;
        let cancelled = (self.gone)() == Some(Gone::Cancelled);
        lock(&self.shared.state).askers.remove(&asker);
        self.shared.step(if self.taken {
            RepeatsEvent::Take { asker }
        } else {
            RepeatsEvent::Leave { asker, cancelled }
        });
    }
}

impl<A: Clone + Send + 'static> Shared<A> {
    fn ask(
        self: &Arc<Self>,
        repeat: Repeat,
        sender: oneshot::Sender<Result<A, NoAnswer>>,
        work: impl Future<Output = Done<A>> + Send + 'static,
    ) -> RequestId {
        let Repeat { owner, id, digest, goes_on, deadline } = repeat;
        let deadline = deadline.map(|at| self.clock.moment(at));
        let mut state = lock(&self.state);
        state.next = RequestId(state.next.0 + 1);
        let asker = state.next;
        state.askers.insert(asker, sender);
        let event = RepeatsEvent::Ask { asker, owner, name: Name(id), digest, goes_on, deadline };
        let effects = state.machine.step(self.clock.now(), event);
        let begun = effects.iter().find_map(|effect| match effect {
            RepeatsEffect::Begin { work } => Some(*work),
            _ => None,
        });
        if let Some(name) = begun {
            let ending = Ending { shared: Arc::clone(self), work: name, done: None };
            let task = tokio::spawn(ending.carry_out(work));
            state.works.insert(name, Held::Running(task.abort_handle()));
        }
        let later = state.run(effects);
        self.arm(&mut state);
        drop(state);
        later.into_iter().for_each(|act| act());
        asker
    }

    fn step(self: &Arc<Self>, event: RepeatsEvent) {
        let mut state = lock(&self.state);
        let effects = state.machine.step(self.clock.now(), event);
        let later = state.run(effects);
        self.arm(&mut state);
        drop(state);
        later.into_iter().for_each(|act| act());
    }

    fn answered(self: &Arc<Self>, work: Work, done: Option<Done<A>>) {
        let keep = done.as_ref().is_some_and(|done| done.keep);
        {
            let mut state = lock(&self.state);
            // One that was given up is not there any more: what it came to is undone, unless its task was stopped before.
            let Some(held) = state.works.get_mut(&work) else {
                drop(state);
                if let Some(undo) = done.and_then(|done| done.undo) {
                    undo();
                }
                return;
            };
            let (answer, undo) = done.map_or((None, None), |done| (Some(done.answer), done.undo));
            *held = Held::Done { answer, undo };
        }
        self.step(RepeatsEvent::Answered { work, keep });
    }

    /// The one timer.
    fn arm(self: &Arc<Self>, state: &mut State<A>) {
        let next = state.machine.next_timeout();
        if next == state.alarm.as_ref().map(|(at, _)| *at) {
            return;
        }
        if let Some((_, old)) = state.alarm.take() {
            old.abort();
        }
        let Some((moment, at)) = next.and_then(|moment| Some((moment, self.clock.instant(moment)?))) else {
            return;
        };
        // At the runtime's end nothing is timed any more.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let shared: Weak<Self> = Arc::downgrade(self);
        let task = runtime.spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            if let Some(shared) = shared.upgrade() {
                lock(&shared.state).alarm = None;
                shared.step(RepeatsEvent::Timeout);
            }
        });
        state.alarm = Some((moment, task.abort_handle()));
    }
}

impl<A: Clone> State<A> {
    fn run(&mut self, effects: Vec<RepeatsEffect>) -> Later {
        let mut later = Later::new();
        for effect in effects {
            match effect {
                // Its task is begun where the work is.
                RepeatsEffect::Begin { .. } => {}
                RepeatsEffect::Answer { asker, work } => {
                    let answer = match self.works.get(&work) {
                        Some(Held::Done { answer: Some(answer), .. }) => Ok(answer.clone()),
                        _ => Err(NoAnswer::Broke),
                    };
                    self.tell(asker, answer);
                }
                RepeatsEffect::Refuse { asker, refusal } => self.tell(asker, Err(NoAnswer::Refused(refusal))),
                RepeatsEffect::GiveUp { work } => match self.works.get_mut(&work) {
                    Some(Held::Running(task)) => {
                        let task = task.clone();
                        later.push(Box::new(move || task.abort()));
                    }
                    Some(Held::Done { undo, .. }) => later.extend(undo.take()),
                    None => {}
                },
                RepeatsEffect::Forget { work } => {
                    self.works.remove(&work);
                }
            }
        }
        later
    }

    /// A requester that has gone needs no answer.
    fn tell(&mut self, asker: RequestId, answer: Result<A, NoAnswer>) {
        if let Some(sender) = self.askers.remove(&asker) {
            let _ = sender.send(answer);
        }
    }
}

/// Tells the end of the work, also where it broke.
struct Ending<A: Clone + Send + 'static> {
    shared: Arc<Shared<A>>,
    work: Work,
    done: Option<Done<A>>,
}

impl<A: Clone + Send + 'static> Ending<A> {
    async fn carry_out(mut self, work: impl Future<Output = Done<A>> + Send + 'static) {
        self.done = Some(work.await);
    }
}

impl<A: Clone + Send + 'static> Drop for Ending<A> {
    fn drop(&mut self) {
        self.shared.answered(self.work, self.done.take());
    }
}

#[cfg(test)]
mod tests;
