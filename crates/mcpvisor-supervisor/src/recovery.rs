//! Sessions that a former daemon has left: what is noted of each while it lives, and how its successor takes it over.
//!
//! Such a session has a record from before the registry's first actor, so that the registry begins as after a loss of its own: the
//! key is blocked and counted, the session is reaped without an actor, and quarantined where that takes too long. Its final state
//! is `failed`, for the reason `internal`.
use crate::core::Core;
use crate::record::SessionRecord;
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_lifecycle::{Generation, KeyRef, ServerName, SessionId, SessionKey, Tenant, Uid};
use mcpvisor_process::{ContainmentKind, Left, LeftId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The version of the form below. It is raised only where an older daemon would misread a note; what is added is not known to
/// an older one and does no harm.
const VERSION: u32 = 1;

/// What is noted of a session for the daemon's successor: what it must know to block the right key and to show whose it was.
/// Owner and generation are in the note's name.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Milliseconds since 1970.
    #[serde(default)]
    created_at: u64,
    #[serde(default)]
    servers: Vec<NotedServer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NotedServer {
    name: String,
    mode: String,
}

const MODES: [(Mode, &str); 3] =
    [(Mode::Shared, "shared"), (Mode::Exclusive, "exclusive"), (Mode::Direct, "direct")];

/// The note of a session.
pub(crate) fn note(record: &SessionRecord) -> Option<Arc<str>> {
    let word = |mode| MODES.iter().find(|(known, _)| *known == mode).map_or("", |(_, word)| word).to_owned();
    let servers = record.servers();
    let servers = servers
        .iter()
        .map(|server| NotedServer { name: server.spec.name.to_string(), mode: word(server.spec.mode) });
    let created_at = record.created_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let note = Note {
        version: VERSION,
        key: record.key.key.to_string(),
        tenant: record.tenant.as_ref().map(Tenant::to_string),
        labels: record.labels.clone(),
        created_at: u64::try_from(created_at.as_millis()).unwrap_or(u64::MAX),
        servers: servers.collect(),
    };
    serde_json::to_string(&note).ok().map(Arc::from)
}

/// A session that a former daemon has left.
#[derive(Debug)]
pub(crate) struct Former {
    pub(crate) id: SessionId,
    pub(crate) key: KeyRef,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created_at: SystemTime,
    pub(crate) servers: Vec<(ServerName, Mode)>,
    pub(crate) left: LeftId,
    pub(crate) containment: ContainmentKind,
}

/// Takes over what former daemons have left, before there is a registry. `kill_wait`: how long the kill may take before a session
/// counts as quarantined.
pub(crate) fn take_over(core: &Core, kill_wait: Duration) {
    for former in former(core.containment.left()) {
        let (key, generation) = (former.key.key.clone(), former.id.generation.0);
        let instance = Arc::clone(&former.left.instance.0);
        tracing::warn!(session = %key, generation, uid = former.id.uid.0, instance = &*instance, "a former daemon's session is not gone yet: its key is blocked until it is");
        let record = Arc::new(SessionRecord::of_former(former, kill_wait, core));
        core.remember(&record);
        record.tell_state(SessionState::Stopping);
    }
}

/// Reads the notes. What can't be read has a key that is made up, so that it is seen and counted all the same: the key that
/// it really had is not known, and not blocked.
fn former(left: &[Left]) -> Vec<Former> {
    let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
    let mut highest: BTreeMap<Uid, u64> = BTreeMap::new();
    for id in left.iter().filter_map(|left| session_id(&left.id.session)) {
        let highest = highest.entry(id.uid).or_default();
        *highest = (*highest).max(id.generation.0);
    }
    let mut all = Vec::new();
    for left in left {
        let Some(mut id) = session_id(&left.id.session) else {
            tracing::error!(session = &*left.id.session, "what a former daemon left has no session's name");
            continue;
        };
        let mut read = left.note.as_deref().and_then(|text| read(text, id, left));
        // Two daemons that have died one after the other can have left the same name only where a note was lost.
        if !ids.insert(id) {
            let highest = highest.entry(id.uid).or_default();
            *highest += 1;
            id.generation = Generation(*highest);
            ids.insert(id);
            read = None;
        }
        if read.as_ref().is_some_and(|former| !keys.insert(former.key.clone())) {
            read = None;
        }
        all.extend(read.or_else(|| unknown(id, left)));
    }
    all
}

/// `UID-GENERATION`, as in `scope_name`.
fn session_id(name: &str) -> Option<SessionId> {
    let (uid, generation) = name.split_once('-')?;
    Some(SessionId { uid: Uid(uid.parse().ok()?), generation: Generation(generation.parse().ok()?) })
}

/// None: it is torn, of a later version, or nonsense.
fn read(text: &str, id: SessionId, left: &Left) -> Option<Former> {
    let told = |what: &dyn std::fmt::Display| {
        let session = &*left.id.session;
        tracing::error!(session, "the note of a former daemon's session is not understood: {what}");
    };
    let note: Note = serde_json::from_str(text).map_err(|error| told(&error)).ok()?;
    if note.version != VERSION {
        told(&format!("it is of version {}", note.version));
        return None;
    }
    let key = SessionKey::new(&note.key).map_err(|error| told(&error)).ok()?;
    let tenant = note.tenant.as_deref().map(Tenant::new).transpose().map_err(|error| told(&error)).ok()?;
    let servers = note.servers.iter().map(|server| {
        let mode = MODES.iter().find(|(_, word)| *word == server.mode).map(|(mode, _)| *mode)?;
        Some((ServerName::new(&server.name).ok()?, mode))
    });
    Some(Former {
        id,
        key: KeyRef { uid: id.uid, key },
        tenant,
        labels: note.labels,
        created_at: UNIX_EPOCH.checked_add(Duration::from_millis(note.created_at)).unwrap_or(UNIX_EPOCH),
        // All or none: a server's place in the list says which processes were its.
        servers: servers.collect::<Option<Vec<_>>>().unwrap_or_default(),
        left: left.id.clone(),
        containment: left.containment,
    })
}

fn unknown(id: SessionId, left: &Left) -> Option<Former> {
    let key = format!("unknown:{}:{}", left.id.instance.0, left.id.session);
    let key = SessionKey::new(&key).ok()?;
    Some(Former {
        id,
        key: KeyRef { uid: id.uid, key },
        tenant: None,
        labels: BTreeMap::new(),
        created_at: UNIX_EPOCH,
        servers: Vec::new(),
        left: left.id.clone(),
        containment: left.containment,
    })
}

#[cfg(test)]
mod tests;
