//! A program that runs to its end beside the servers, in a scope of its own: contained, killed and reaped as they are.
use crate::relay;
use crate::stderr_log::StderrLog;
use mcpvisor_process::{
    Containment, Exit, LaunchError, LaunchErrorKind, LaunchSpec, Launched, ScopeFact, ScopeId, ScopeReport,
};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// How much of its stderr is told, in bytes.
const TAIL: usize = 1024;

/// How a program ended; nothing of it is left.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How its main process did, or why there was none.
    pub(crate) result: Result<Exit, LaunchError>,
    /// It was killed before its end, when `cut` was there.
    pub(crate) cut: bool,
    /// The end of its stderr; what is not UTF-8 is replaced. Not escaped.
    pub(crate) stderr_tail: String,
    /// What is known of its scope; none where the launch failed.
    pub(crate) report: Option<Arc<ScopeReport>>,
}

impl Ended {
    /// It did what it is for, as far as it says.
    pub(crate) fn is_good(&self) -> bool {
        !self.cut && matches!(self.result, Ok(Exit::Code(0)))
    }
}

/// A program whose launch was handed over.
pub(crate) struct Program {
    containment: Containment,
    scope: ScopeId,
    facts: mpsc::UnboundedReceiver<ScopeFact>,
    launched: oneshot::Receiver<Result<Launched, LaunchError>>,
}

impl Program {
    /// Hands over its launch. Whoever drops it before its end must kill and release the scope.
    pub(crate) fn launch(containment: &Containment, scope: ScopeId, spec: LaunchSpec) -> Self {
        let (fact, facts) = mpsc::unbounded_channel();
        let (answer, launched) = oneshot::channel();
        let observer = Arc::new(move |told| {
            let _ = fact.send(told);
        });
        let done = Box::new(move |result| {
            let _ = answer.send(result);
        });
        containment.launch(scope.clone(), spec, observer, done);
        Self { containment: containment.clone(), scope, facts, launched }
    }

    /// Waits until it has exited, or until `cut`; then ends whatever it has left, and returns when nothing of it exists. `input` is its stdin;
    /// what it writes to stdout is thrown away.
    pub(crate) async fn end(self, input: Vec<u8>, cut: impl Future<Output = ()>) -> Ended {
        let Self { containment, scope, mut facts, launched } = self;
        let scope = &scope;
        let (mut cut, mut launched) = (pin!(cut), pin!(launched));
        let mut was_cut = false;
        let launched = tokio::select! {
            launched = &mut launched => launched,
            () = &mut cut => {
                was_cut = true;
                containment.kill(scope);
                launched.await
            }
        };
        // The answer is given exactly once, as long as there is a daemon.
        let launched = launched.unwrap_or_else(|_| {
            Err(LaunchError { kind: LaunchErrorKind::Killed, message: "the daemon is ending".to_owned() })
        });
        let launched = match launched {
            Ok(launched) => launched,
            Err(error) => {
                containment.release(scope);
                return Ended { result: Err(error), cut: was_cut, stderr_tail: String::new(), report: None };
            }
        };
        let (stderr, mut streams) = match streams(launched, input) {
            Ok(streams) => streams,
            Err(error) => {
                tracing::warn!(%error, "the streams of a program can't be used");
                containment.kill(scope);
                (None, JoinSet::new())
            }
        };
        let (mut exit, mut told) = (None, was_cut);
        let report = loop {
            let fact = tokio::select! {
                fact = facts.recv() => fact,
                () = &mut cut, if !told => {
                    (told, was_cut) = (true, exit.is_none());
                    containment.kill(scope);
                    continue;
                }
            };
            match fact {
                Some(ScopeFact::MainExited { exit: how }) => {
                    exit = Some(how);
                    // What it has left in the background has nobody to end it.
                    containment.kill(scope);
                }
                Some(ScopeFact::Empty { report }) => break Some(report),
                None => break None,
            }
        };
        streams.abort_all();
        let tail = stderr.map_or_else(String::new, |stderr| {
            stderr.close();
            stderr.tail(TAIL)
        });
        containment.release(scope);
        let killed = || LaunchError { kind: LaunchErrorKind::Killed, message: "it was killed".to_owned() };
        Ended { result: exit.ok_or_else(killed), cut: was_cut, stderr_tail: tail, report }
    }
}

/// Feeds it, and keeps what it says from standing still.
fn streams(launched: Launched, input: Vec<u8>) -> io::Result<(Option<StderrLog>, JoinSet<()>)> {
    let stderr = StderrLog::start(launched.stderr, None)?;
    let mut tasks = JoinSet::new();
    if let Some(stdin) = launched.stdin {
        let mut stdin = pipe::Sender::from_owned_fd(stdin)?;
        tasks.spawn(async move {
            // One that reads nothing of it has no need to.
            let _ = stdin.write_all(&input).await;
        });
    }
    if let Some(stdout) = launched.stdout {
        let stdout = relay::receiver(stdout)?;
        tasks.spawn(throw_away(stdout));
    }
    Ok((Some(stderr), tasks))
}

async fn throw_away(mut stdout: pipe::Receiver) {
    let mut buffer = [0; 4096];
    while stdout.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}
