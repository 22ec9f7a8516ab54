//! Hooks: programs of the daemon's configuration that run on events.
//!
//! Publishing an event only puts it into a queue with bounds; what finds no room there is dropped and counted. So no hook, and no
//! number of hooks, can hold up what it is told of. Each runs once for an event, at most eight at a time, in a scope of
//! its own that is killed when its time is up, and is reaped in any case (G15).
use crate::events::{Event, EventKind, Events, Fields, Subject};
use crate::program::{Ended, Program};
use crate::record::lock;
use mcpvisor_lifecycle::Uid;
use mcpvisor_process::{Containment, Cwd, LaunchSpec, ScopeId, Stdio};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

/// How many run at once.
const AT_ONCE: usize = 8;
/// How many wait.
const MOST_WAITING: usize = 1024;
/// How long the last processes of a hook that was killed may take to go, before the next one takes its place.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// A program that runs on events.
#[derive(Debug, Clone)]
pub struct Hook {
    /// What it is called in events and in the log.
    pub name: String,
    /// On which kinds of events: each a kind, a kind's beginning with a `*` behind it (`session.*`), or `*` alone. Never on those of hooks.
    pub on: Vec<String>,
    /// As execvp(3) takes it; looked for in the `PATH` of `env`.
    pub program: CString,
    /// The arguments, `argv[0]` included.
    pub args: Vec<CString>,
    /// The whole environment, `NAME=VALUE`.
    pub env: Vec<CString>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// After this time it is killed.
    pub timeout: Duration,
}

impl Hook {
    /// A pattern of `on` means this kind.
    #[must_use]
    pub fn means(pattern: &str, kind: EventKind) -> bool {
        kind != EventKind::HookEnded
            && match pattern.strip_suffix('*') {
                Some(beginning) => kind.as_str().starts_with(beginning),
                None => kind.as_str() == pattern,
            }
    }

    fn wants(&self, kind: EventKind) -> bool {
        self.on.iter().any(|pattern| Self::means(pattern, kind))
    }
}

/// How an event of a user is told to a hook, on its stdin.
pub type Render = Arc<dyn Fn(Uid, &Event) -> Vec<u8> + Send + Sync>;

/// The hooks in force and how to tell them.
#[derive(Clone)]
pub struct HookSet {
    /// In order of the configuration.
    pub hooks: Vec<Arc<Hook>>,
    /// See [`Render`].
    pub render: Render,
}

struct Job {
    hook: Arc<Hook>,
    render: Render,
    uid: Uid,
    event: Arc<Event>,
}

#[derive(Debug, Default)]
struct Counters {
    run: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// The way to the hooks; cheap to clone.
#[derive(Clone)]
pub(crate) struct Hooks(Arc<Shared>);

struct Shared {
    set: Mutex<Option<HookSet>>,
    queue: mpsc::Sender<Job>,
    counters: Counters,
    /// No more begin, once it is true; those that run are killed.
    cut: watch::Sender<bool>,
    /// How many wait or run.
    busy: watch::Sender<usize>,
}

impl Hooks {
    /// Starts what runs them, on the current runtime. `user` hears of their ends.
    pub(crate) fn start(events: &Events, containment: Containment, user: Uid) -> Self {
        let (queue, jobs) = mpsc::channel(MOST_WAITING);
        let hooks = Self(Arc::new(Shared {
            set: Mutex::new(None),
            queue,
            counters: Counters::default(),
            cut: watch::Sender::new(false),
            busy: watch::Sender::new(0),
        }));
        let listener = hooks.clone();
        events.listen(Box::new(move |uid, event| listener.heard(uid, event)));
        tokio::spawn(Runner { hooks: hooks.clone(), events: events.clone(), containment, user }.run(jobs));
        hooks
    }

    pub(crate) fn set(&self, set: HookSet) {
        *lock(&self.0.set) = Some(set).filter(|set| !set.hooks.is_empty());
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 3] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { run, failed, dropped } = &self.0.counters;
        [("hooks_run", read(run)), ("hooks_failed", read(failed)), ("hooks_dropped", read(dropped))]
    }

    /// An event was published. Neither waits nor fails.
    pub(crate) fn heard(&self, uid: Uid, event: &Arc<Event>) {
        let Some(HookSet { hooks, render }) = lock(&self.0.set).clone() else { return };
        for hook in hooks.iter().filter(|hook| hook.wants(event.kind)) {
            let job =
                Job { hook: Arc::clone(hook), render: Arc::clone(&render), uid, event: Arc::clone(event) };
            self.0.busy.send_modify(|busy| *busy += 1);
            if self.0.queue.try_send(job).is_err() {
                self.0.counters.dropped.fetch_add(1, Ordering::Relaxed);
                self.done();
            }
        }
    }

    fn done(&self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }

    /// Lets those that wait and run end by themselves for at most `grace`, then kills them, and returns when they are gone, or
    /// can't be killed in a moment.
    pub(crate) async fn end(&self, grace: Duration) {
        if self.all_done(grace).await {
            return;
        }
        let left = *self.0.busy.borrow();
        tracing::warn!(left, "hooks are killed: the daemon ends");
        self.0.cut.send_replace(true);
        self.all_done(KILL_WAIT).await;
    }

    async fn all_done(&self, within: Duration) -> bool {
        let mut busy = self.0.busy.subscribe();
        let done = busy.wait_for(|busy| *busy == 0);
        tokio::time::timeout(within, done).await.is_ok()
    }
}

struct Runner {
    hooks: Hooks,
    events: Events,
    containment: Containment,
    user: Uid,
}

impl Runner {
    async fn run(self, mut jobs: mpsc::Receiver<Job>) {
        let runner = Arc::new(self);
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut running = JoinSet::new();
        let mut number = 0_u64;
        while let Some(job) = jobs.recv().await {
            // Never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            while running.try_join_next().is_some() {}
            number += 1;
            let (runner, number) = (Arc::clone(&runner), number);
            running.spawn(async move {
                runner.one(job, number).await;
                runner.hooks.done();
                drop(place);
            });
        }
    }

    async fn one(&self, job: Job, number: u64) {
        let shared = &self.hooks.0;
        let mut cut = shared.cut.subscribe();
        if *cut.borrow() {
            shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Job { hook, render, uid, event } = job;
        shared.counters.run.fetch_add(1, Ordering::Relaxed);
        let scope = scope(number);
        let began = Instant::now();
        let over = async {
            tokio::select! {
                () = tokio::time::sleep(hook.timeout) => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
        };
        let input = render(uid, &event);
        let ended = {
            let program = Program::launch(&self.containment, scope.clone(), launch(&hook));
            let run = program.end(input, over);
            tokio::pin!(run);
            tokio::select! {
                ended = &mut run => Some(ended),
                // Its time and the kill's are over: its place is given to the next.
                () = tokio::time::sleep(hook.timeout + KILL_WAIT) => None,
            }
        };
        if ended.is_some() {
            self.containment.release_session(Arc::clone(&scope.session));
        } else {
            self.containment.release(&scope);
        }
        self.tell(&hook, uid, &event, ended, began.elapsed());
    }

    /// None: it could not be killed.
    fn tell(&self, hook: &Hook, uid: Uid, event: &Event, ended: Option<Ended>, took: Duration) {
        let good = ended.as_ref().is_some_and(Ended::is_good);
        let (name, on, seq) = (hook.name.as_str(), event.kind.as_str(), event.seq);
        let (killed, result, tail) = match ended {
            Some(ended) => (ended.cut, ended.result.map_err(|error| error.message), ended.stderr_tail),
            None => (true, Err("it can't be killed".to_owned()), String::new()),
        };
        let (exit, message) = (result.as_ref().ok(), result.as_ref().err().map(String::as_str));
        if good {
            tracing::debug!(hook = name, on, seq, "a hook has run");
        } else {
            self.hooks.0.counters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(hook = name, on, seq, killed, ?exit, message, stderr = tail, "a hook has failed");
        }
        let data: Fields = vec![
            ("hook", name.into()),
            ("on", on.into()),
            ("owner", Fields::from([("uid", uid.0.into())]).into()),
            ("seq", seq.into()),
            ("ok", good.into()),
            ("killed", killed.into()),
            ("exit", exit.copied().into()),
            ("message", message.into()),
            ("duration_ms", took.into()),
            ("stderr_tail", tail.as_str().into()),
        ];
        let subject = Subject { server: None, ..event.subject.clone() };
        self.events.publish(self.user, EventKind::HookEnded, subject, data);
    }
}

/// No session has such a name: theirs have two numbers.
fn scope(number: u64) -> ScopeId {
    ScopeId { session: format!("{PREFIX}{number}").into(), leaf: "0-1".into() }
}

const PREFIX: &str = "0-0-";

/// A scope is a hook's, and no session's.
pub(crate) fn is_hook(scope: &ScopeId) -> bool {
    scope.session.starts_with(PREFIX)
}

fn launch(hook: &Hook) -> LaunchSpec {
    LaunchSpec {
        program: hook.program.clone(),
        args: hook.args.clone(),
        env: hook.env.clone(),
        cwd: Cwd::Path(hook.cwd.clone()),
        stdio: Stdio::Piped,
        umask: None,
        limits: Vec::new(),
        nice: None,
        ignored_signals: Vec::new(),
        credentials: None,
        no_new_privs: false,
        memory_max: None,
        pids_max: None,
        note: None,
        deadline: hook.timeout,
    }
}
