//! The servers of a session. They come and go while it lives; who looks sees them as they were at one moment.
use crate::api::ServerCertificate;
use crate::record::{ServerRecord, lock};
use mcpvisor_lifecycle::Place;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// In the order in which names are theirs: the newest is the last, and one that replaced another stands where that stood.
pub(crate) type Servers = Arc<[Arc<ServerRecord>]>;

/// The most certificates that are kept of servers which were removed; older ones are left out of the session's.
const MOST_DEPARTED: usize = 256;

/// Written by the session's actor alone.
pub(crate) struct Roster(Mutex<Lists>);

struct Lists {
    all: Servers,
    members: Servers,
    departed: Departed,
}

/// What is remembered of servers that are no more.
#[derive(Clone, Default)]
pub(crate) struct Departed {
    pub(crate) certificates: VecDeque<ServerCertificate>,
    /// One of them was the session's own, and may have had processes.
    pub(crate) own: bool,
    /// The emptiness of one of them rested on a search.
    pub(crate) unproven: bool,
    pub(crate) last_exit: Option<Instant>,
}

impl Roster {
    /// Of these, which are all members.
    pub(crate) fn new(servers: Vec<Arc<ServerRecord>>) -> Self {
        let all: Servers = servers.into();
        Self(Mutex::new(Lists { members: Arc::clone(&all), all, departed: Departed::default() }))
    }

    /// Those too that are being added or removed.
    pub(crate) fn all(&self) -> Servers {
        Arc::clone(&lock(&self.0).all)
    }

    /// Those whose tools are the session's.
    pub(crate) fn members(&self) -> Servers {
        Arc::clone(&lock(&self.0).members)
    }

    pub(crate) fn at(&self, place: Place) -> Option<Arc<ServerRecord>> {
        lock(&self.0).all.iter().find(|server| server.place() == place).cloned()
    }

    pub(crate) fn departed(&self) -> Departed {
        lock(&self.0).departed.clone()
    }

    /// It is there, and no member yet.
    pub(crate) fn add(&self, server: &Arc<ServerRecord>) {
        let mut lists = lock(&self.0);
        lists.all = with(&lists.all, server);
    }

    /// It is a member, and the one that it replaces is none, in one step.
    pub(crate) fn publish(&self, server: &Arc<ServerRecord>, replaces: Option<Place>) {
        let mut lists = lock(&self.0);
        let rest = match replaces {
            Some(old) => without(&lists.members, old),
            None => Arc::clone(&lists.members),
        };
        lists.members = with(&rest, server);
    }

    /// It is no member any more.
    pub(crate) fn retire(&self, place: Place) {
        let mut lists = lock(&self.0);
        lists.members = without(&lists.members, place);
    }

    /// Nothing of it is left but its certificate.
    pub(crate) fn forget(&self, place: Place) {
        let mut lists = lock(&self.0);
        let Some(server) = lists.all.iter().find(|server| server.place() == place).cloned() else { return };
        lists.members = without(&lists.members, place);
        lists.all = without(&lists.all, place);
        let live = server.live();
        let departed = &mut lists.departed;
        departed.own |= !server.spec.scope.is_apart();
        departed.unproven |= !live.proven;
        departed.last_exit = departed.last_exit.max(live.last_exit);
        if let Some(certificate) = live.certificate.clone() {
            departed.certificates.push_back(certificate);
            if departed.certificates.len() > MOST_DEPARTED {
                departed.certificates.pop_front();
            }
        }
    }
}

impl ServerRecord {
    /// Its place in the session, as the machine counts it.
    pub(crate) fn place(&self) -> Place {
        Place(u32::try_from(self.index).unwrap_or(u32::MAX))
    }
}

fn with(servers: &Servers, one: &Arc<ServerRecord>) -> Servers {
    let mut all: Vec<_> = servers.to_vec();
    let order = |server: &Arc<ServerRecord>| (server.rank, server.index);
    let at = all.partition_point(|other| order(other) < order(one));
    all.insert(at, Arc::clone(one));
    all.into()
}

fn without(servers: &Servers, place: Place) -> Servers {
    servers.iter().filter(|server| server.place() != place).cloned().collect()
}
