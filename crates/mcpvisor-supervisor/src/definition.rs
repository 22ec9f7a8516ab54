//! When two opens mean the same session.
use crate::api::{OpenRequest, Policy, Scope, ServerSpec};
use mcpvisor_lifecycle::server::{Mode, Restart};
use mcpvisor_lifecycle::session::Limits;
use mcpvisor_lifecycle::{RequestId, SessionKey, SpecDigest, Tenant};
use mcpvisor_mcp::catalogue::Prefix;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Variables that differ from shell to shell and tell a server nothing.
const VOLATILE: [&[u8]; 4] = [b"_=", b"SHLVL=", b"OLDPWD=", b"WINDOWID="];

/// Whether a variable, `NAME=VALUE`, says nothing of what is asked for.
#[must_use]
pub fn is_volatile(variable: &[u8]) -> bool {
    VOLATILE.iter().any(|volatile| variable.starts_with(volatile))
}

/// A digest of everything that makes the session what it is. Direct sessions are each one of their own: their streams
/// are their client's.
pub(crate) fn digest(request: &OpenRequest, id: RequestId) -> u64 {
    if request.direct.is_some() {
        return id.0;
    }
    if request.key.key.is_of_shared() {
        return request.servers.first().map_or(id.0, server);
    }
    let of = Whole {
        tenant: request.tenant.as_ref(),
        parent: request.parent.as_ref(),
        labels: &request.labels,
        drain: request.drain,
        prefix: request.prefix,
        policy: &request.policy,
        limits: request.limits,
    };
    of.digest(request.servers.iter().map(server))
}

/// What makes a session what it is, besides its servers.
pub(crate) struct Whole<'a> {
    pub(crate) tenant: Option<&'a Tenant>,
    pub(crate) parent: Option<&'a SessionKey>,
    pub(crate) labels: &'a BTreeMap<String, String>,
    pub(crate) drain: Duration,
    pub(crate) prefix: Prefix,
    pub(crate) policy: &'a Policy,
    pub(crate) limits: Limits,
}

impl Whole<'_> {
    /// With the digests of its servers, in their order.
    pub(crate) fn digest(&self, servers: impl Iterator<Item = u64>) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.tenant, self.parent, self.labels, self.drain, self.prefix, self.limits).hash(&mut hash);
        self.policy.hash(&mut hash);
        servers.for_each(|server| server.hash(&mut hash));
        hash.finish()
    }
}

/// A digest of everything that makes a server what it is: two definitions with the same one mean the same server. It holds in this
/// process alone.
#[must_use]
pub fn server(server: &ServerSpec) -> u64 {
    let mut hash = DefaultHasher::new();
    (&server.name, server.scope.as_str()).hash(&mut hash);
    // Not the linger: how long it stays unused makes it no other server.
    if let Scope::Daemon { profile, .. } = &server.scope {
        profile.hash(&mut hash);
    }
    program(server, &mut hash);
    (server.umask, server.nice, &server.ignored_signals, server.no_new_privs).hash(&mut hash);
    for limit in &server.limits {
        (limit.resource, limit.soft, limit.hard).hash(&mut hash);
    }
    (server.memory_max, server.pids_max, server.max_in_flight, server.calls).hash(&mut hash);
    (server.mode, server.era, server.required, server.significant, server.restart).hash(&mut hash);
    // Not the longest line: that is the daemon's matter, and nobody asks for one.
    (server.restart_intensity, server.restart_period, server.start).hash(&mut hash);
    (&server.health, &server.stop_command).hash(&mut hash);
    (server.stdin_grace, server.term_grace, server.kill_wait).hash(&mut hash);
    hash.finish()
}

/// A digest of the program that a server is: two with the same one start and speak alike, whatever they are called and however they
/// are supervised.
pub(crate) fn spec(server: &ServerSpec) -> SpecDigest {
    let mut hash = DefaultHasher::new();
    program(server, &mut hash);
    SpecDigest(hash.finish())
}

fn program(server: &ServerSpec, hash: &mut DefaultHasher) {
    (&server.program, &server.args, &server.cwd).hash(hash);
    if let Scope::External { socket } = &server.scope {
        socket.hash(hash);
    }
    for variable in &*server.env {
        if !is_volatile(variable.to_bytes()) {
            variable.hash(hash);
        }
    }
    if let Some(credentials) = &server.credentials {
        (credentials.uid, credentials.gid, &credentials.groups).hash(hash);
    }
}

/// The servers of a session that breakers heed.
pub(crate) fn with_breakers(request: &OpenRequest) -> Vec<SpecDigest> {
    request.servers.iter().filter(|server| has_breaker(server)).map(spec).collect()
}

/// That of a server which sessions share is its host's.
pub(crate) fn has_breaker(server: &ServerSpec) -> bool {
    server.breaker && server.required && !matches!(server.scope, Scope::Daemon { .. })
}

/// What follows from streams of the client's own: the one server is spoken to by its client alone, directly unless it is exclusive,
/// and is never started again.
pub(crate) fn make_the_clients_own(request: &mut OpenRequest) {
    for server in &mut request.servers {
        if server.mode != Mode::Exclusive {
            server.mode = Mode::Direct;
        }
        server.required = true;
        // Its client starts it as it likes, with or without us.
        server.breaker = false;
        server.restart = Restart::Temporary;
    }
}
