//! Opening a session.
use super::queue;
use super::repeat::{self, Asked, Worked};
use crate::config::Config;
use crate::connection::Context;
use crate::convert;
use crate::daemon::Daemon;
use crate::peer::Peer;
use crate::resolve::{self, Resolved};
use crate::wire::Descriptors;
use mcpvisor_control::params::{
    IfClosing as WireIfClosing, IfOpen as WireIfOpen, OnIdle as WireOnIdle, SessionOpen,
};
use mcpvisor_control::{ErrorKind, ErrorObject, Lease, Token, results};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::registry::{IfClosing, IfOpen};
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::{Generation, KeyRef, ProfileName, SessionId, SessionKey, Uid};
use mcpvisor_process::Holder;
use mcpvisor_supervisor::{Failure, IdleLimit, Limits, OnIdle, OpenRequest, Opened, Opener, Secret, Undo};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The most labels of a session, and the longest of their names and values, in bytes.
const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 1024;
/// The longest time to live: a hundred years, as for the durations of a command line; its end has a date.
const LONGEST_TTL: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

pub(super) async fn open(
    context: Context,
    params: SessionOpen,
    descriptors: Descriptors,
) -> Result<results::Opened, ErrorObject> {
    failpoints::pass(Gate::OpenDispatched).await;
    let uid = context.daemon.rights().owner(&context.peer, params.user)?;
    labels(&params)?;
    if params.request_id.is_some() {
        return again(context, uid, params).await;
    }
    let (wait, lease, parent) = (params.wait, params.lease, params.parent.clone());
    let told = params.progress && params.queue_ms.is_some();
    let deadline = context.deadline(params.deadline_ms);
    let (mut request, read) = prepare(&context, uid, params, descriptors, deadline).await?;
    let position = told.then(|| {
        let (sender, position) = watch::channel(0);
        request.position = Some(sender);
        position
    });
    let (key, of_shim) = (request.key.key.clone(), request.direct.is_some());
    let daemon = &context.daemon;
    let held = Hold { lease, wait, of_shim };
    let opened = if wait {
        // Dropping this future, when the requester gives up or goes away, cancels the open.
        let opened = context.daemon.supervisor.open(request);
        hold(&context, held, &read, queue::told_beside(&context, position, opened).await)
    } else {
        // This one goes on without its requester, who may be gone before it is even admitted; its lease then ends at once.
        let worker = context.clone();
        let work = async move {
            let opened = worker.daemon.supervisor.open(request).await;
            hold(&worker, held, &read, opened)
        };
        let opened = queue::told_beside(&context, position, tokio::spawn(work)).await;
        opened.unwrap_or_else(|error| Err(Failure::Internal(error.to_string())))
    };
    let opened = opened.map_err(|failure| convert::open_error(failure, &key, parent.as_ref()));
    audit(&context, &key, &opened);
    let opened = opened?;
    // The shim can kill what is left should this daemon die without a word.
    let session = SessionId { uid, generation: opened.session.generation };
    let mut unanswered = Unanswered { context: &context, opener: opened.opener, armed: wait };
    let kill = if of_shim { daemon.supervisor.kill_file(session).await } else { None };
    unanswered.armed = false;
    let kill_descriptor = kill.is_some();
    *context.gift.lock().unwrap_or_else(PoisonError::into_inner) = kill;
    Ok(results::Opened {
        session: convert::session(&opened.session),
        created: opened.created,
        kill_descriptor,
        token: token(&opened),
    })
}

/// What is to be opened, with all variables resolved, and by which configuration.
async fn prepare(
    context: &Context,
    uid: Uid,
    params: SessionOpen,
    descriptors: Descriptors,
    deadline: Option<Instant>,
) -> Result<(OpenRequest, Arc<Config>), ErrorObject> {
    let (config, rights, peer) = (context.daemon.config(), context.daemon.rights(), &*context.peer);
    let holder = holder(&context.daemon, peer, params.lease)?;
    let direct = resolve::streams(&params, descriptors)?;
    let resolved = resolve::servers(&config, &rights, peer, uid, &params).await?;
    failpoints::pass(Gate::OpenResolved).await;
    let limits = limits(&params, &resolved)?;
    let key = match &params.key {
        Some(key) => convert::key_name(key),
        None => made_up()?,
    };
    // Nobody but its own client is ever attached to a session that came with one.
    let secret = if direct.is_none() { Some(Secret::new(random()?)) } else { None };
    let parent = params.parent.as_ref().map(convert::key_name);
    if let Some(reserved) = [Some(&key), parent.as_ref()].into_iter().flatten().find(|key| key.is_of_shared())
    {
        let text = format!("{reserved}: keys that begin so are those of servers that sessions share");
        return Err(ErrorObject::new(ErrorKind::InvalidRequest, text));
    }
    let request = OpenRequest {
        key: KeyRef { uid, key },
        tenant: params.tenant.as_ref().map(convert::tenant_name),
        parent,
        profile: params.profile.as_deref().and_then(|name| ProfileName::new(name).ok()),
        administrator: rights.is_administrator(peer),
        queue: context.deadline(params.queue_ms),
        position: None,
        labels: params.labels,
        servers: resolved.servers,
        origin: resolved.origin,
        drain: resolved.drain,
        prefix: resolved.prefix,
        policy: resolved.policy,
        direct,
        if_closing: match params.if_closing {
            WireIfClosing::Wait => IfClosing::Wait,
            WireIfClosing::Fail => IfClosing::Fail,
        },
        if_open: match params.if_open {
            WireIfOpen::Join => IfOpen::Join,
            WireIfOpen::Fail => IfOpen::Fail,
        },
        wait: params.wait,
        deadline,
        lease: params.lease.to_string(),
        holder,
        limits,
        secret,
    };
    Ok((request, config))
}

/// An open with an id: carried out once, by a task of its own, for whoever sends it.
async fn again(context: Context, uid: Uid, params: SessionOpen) -> Result<results::Opened, ErrorObject> {
    let invalid = |message| Err(ErrorObject::new(ErrorKind::InvalidRequest, message));
    if params.direct.is_some() || params.relay.is_some() {
        return invalid("an open that comes with descriptors can't be sent again: it takes no request id");
    }
    let (wait, lease) = (params.wait, params.lease);
    if !wait && lease == Lease::Connection {
        return invalid("an open with a request id and the lease of a connection must wait for its answer");
    }
    let asked = Asked {
        id: params.request_id.clone().unwrap_or_default(),
        owner: uid,
        goes_on: !wait,
        deadline: context.deadline(params.deadline_ms),
    };
    // Each requester that waits has a patience of its own.
    let deadline = asked.deadline.filter(|_| !wait);
    let (worker, asks) = (context.clone(), params.clone());
    let work = async move { carry_out(&worker, uid, asks, deadline).await };
    let opened: results::Opened = repeat::once(&context, asked, &params, work).await?;
    // In the step in which the answer is taken: see `hold`. Each connection that takes it holds the lease, and the last one ends it.
    if opened.created && lease == Lease::Connection {
        context.leases.add(SessionId { uid, generation: Generation(opened.session.generation) });
    }
    Ok(opened)
}

async fn carry_out(
    context: &Context,
    uid: Uid,
    params: SessionOpen,
    deadline: Option<Instant>,
) -> Worked<results::Opened> {
    let (none, parent, lease) = (Descriptors::default(), params.parent.clone(), params.lease);
    let (request, read) = match prepare(context, uid, params, none, deadline).await {
        Ok(request) => request,
        Err(error) => return (Err(error), None),
    };
    let (key, wait, leased) = (request.key.key.clone(), request.wait, lease == Lease::Connection);
    let opened = context.daemon.supervisor.open(request).await;
    caught_up(context, &read, &opened);
    let opened = opened.map_err(|failure| convert::open_error(failure, &key, parent.as_ref()));
    audit(context, &key, &opened);
    let undo = opened.as_ref().ok().filter(|_| wait).map(|opened| -> Undo {
        let supervisor = context.daemon.supervisor.clone();
        let (opener, session) = (opened.opener, opened.kept.session());
        // Nobody ever held the lease of a connection that vanished: it is over. Else this opener alone has gone.
        match leased && opened.created {
            true => Box::new(move || supervisor.lease_ended(session)),
            false => Box::new(move || supervisor.unheard(opener)),
        }
    });
    let answer = opened.map(|opened| results::Opened {
        session: convert::session(&opened.session),
        created: opened.created,
        kill_descriptor: false,
        token: token(&opened),
    });
    (answer, undo)
}

/// A session that is open and that its requester has not been told of. One that gives up before cancels late.
struct Unanswered<'a> {
    context: &'a Context,
    opener: Opener,
    armed: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.context.daemon.supervisor.unheard(self.opener);
        }
    }
}

/// Takes the lease in the same step as the answer: there is no moment at which the session is open and its connection's end
/// would not be noticed. One that was joined is another's.
fn hold(
    context: &Context,
    hold: Hold,
    read: &Arc<Config>,
    opened: Result<Opened, Failure>,
) -> Result<Opened, Failure> {
    caught_up(context, read, &opened);
    let opened = opened?;
    if hold.of_shim {
        context.leases.keep(opened.kept.clone());
    }
    if hold.lease == Lease::Connection && opened.created {
        context.leases.add(opened.kept.session());
    } else if hold.wait && context.leases.has_ended() {
        // A requester that vanished before the answer cancels late.
        context.daemon.supervisor.unheard(opened.opener);
    }
    Ok(opened)
}

/// How a connection holds what it opens.
#[derive(Clone, Copy)]
struct Hold {
    lease: Lease,
    wait: bool,
    of_shim: bool,
}

/// A reload that came while it was resolved, queued or admitted holds for it too.
fn caught_up(context: &Context, read: &Arc<Config>, opened: &Result<Opened, Failure>) {
    if let Ok(opened) = opened
        && opened.created
    {
        let session = SessionId { uid: opened.session.owner, generation: opened.session.generation };
        context.daemon.admitted(session, read);
    }
}

/// The process of a lease, opened before anything is admitted: a number that another process gets later means nothing.
fn holder(daemon: &Daemon, peer: &Peer, lease: Lease) -> Result<Option<Holder>, ErrorObject> {
    let Lease::Pid(pid) = lease else { return Ok(None) };
    daemon.rights().holder(peer, pid).map(Some)
}

/// An idle limit that nobody asked for is of sessions with a shared server: the client of an exclusive one is the other end of its own
/// server, and may say nothing for as long as it likes.
fn limits(params: &SessionOpen, resolved: &Resolved) -> Result<Limits, ErrorObject> {
    let ttl = params.ttl_ms.map(Duration::from_millis);
    if ttl.is_some_and(|ttl| ttl > LONGEST_TTL) {
        let why = format!("a session lives for at most {} ms (ttl_ms)", LONGEST_TTL.as_millis());
        return Err(ErrorObject::new(ErrorKind::InvalidRequest, why));
    }
    if ttl == Some(Duration::ZERO) {
        return Err(ErrorObject::new(ErrorKind::InvalidRequest, "a session can't live for no time (ttl_ms)"));
    }
    let any_shared = resolved.servers.iter().any(|server| server.mode == Mode::Shared);
    let idle = match params.idle_ms.map(Duration::from_millis) {
        Some(_) if params.direct.is_some() => {
            let why = "no byte of a direct session passes through the daemon: it has no idle limit (idle_ms)";
            return Err(ErrorObject::new(ErrorKind::Unsupported, why));
        }
        Some(idle) => idle,
        None if any_shared && params.direct.is_none() => resolved.idle,
        None => Duration::ZERO,
    };
    let then = match params.on_idle {
        WireOnIdle::Close => OnIdle::Close,
        WireOnIdle::Park if idle.is_zero() => {
            let why = "a session without an idle limit is never parked (on_idle)";
            return Err(
                ErrorObject::new(ErrorKind::InvalidRequest, why).with("help", "name one with `--idle`")
            );
        }
        WireOnIdle::Park => OnIdle::Park,
    };
    let idle = (!idle.is_zero()).then_some(IdleLimit { idle, pin: resolved.pin, then });
    Ok(Limits { ttl, idle })
}

fn labels(params: &SessionOpen) -> Result<(), ErrorObject> {
    let invalid = |message: String| Err(ErrorObject::new(ErrorKind::InvalidRequest, message));
    if params.labels.len() > MOST_LABELS {
        return invalid(format!("a session has at most {MOST_LABELS} labels"));
    }
    for (name, value) in &params.labels {
        if name.is_empty() || name.len() > LONGEST_LABEL || value.len() > LONGEST_LABEL {
            return invalid(format!(
                "a label's name and value have at most {LONGEST_LABEL} bytes, and a name has one"
            ));
        }
    }
    Ok(())
}

/// Ten random letters and digits.
fn made_up() -> Result<SessionKey, ErrorObject> {
    const DIGITS: &[u8; 32] = b"abcdefghijkmnopqrstuvwxyz2345678";
    let bytes: [u8; 10] = random()?;
    let key: String = bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte % 32)])).collect();
    Ok(SessionKey::new(&key).expect("letters and digits are a key"))
}

fn random<const COUNT: usize>() -> Result<[u8; COUNT], ErrorObject> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|error| {
        ErrorObject::new(ErrorKind::Internal, format!("no random bytes are to be had: {error}"))
    })?;
    Ok(bytes)
}

/// For the one who opened it.
fn token(opened: &Opened) -> Option<Token> {
    let token = opened.token.as_ref()?;
    Some(Token::of(token.session.uid.0, token.session.generation.0, token.secret.bytes()))
}

fn audit(context: &Context, key: &SessionKey, opened: &Result<Opened, ErrorObject>) {
    let (uid, pid) = (context.peer.uid, context.peer.pid);
    match opened {
        Ok(opened) => {
            let (generation, created) = (opened.session.generation.0, opened.created);
            tracing::info!(session = %key, generation, uid, pid, created, "session opened");
        }
        Err(error) => {
            let kind = error.kind().as_str();
            tracing::info!(session = %key, uid, pid, kind, cause = error.message, "open refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_made_up_are_keys_and_differ() {
        let keys: std::collections::HashSet<_> = (0..100).map(|_| made_up().unwrap()).collect();
        assert_eq!(keys.len(), 100);
    }
}
