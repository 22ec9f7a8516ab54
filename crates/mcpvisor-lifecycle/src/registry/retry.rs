//! When it may be worth to try again where a limit is reached: from what is known of those that count against it.
use super::entry::Entry;
use super::types::{CapacityScope, Lifetime, Open, Phase, Quota, Refusal};
use super::{Effects, Registry};
use crate::Moment;
use std::time::Duration;

/// Where nothing is known: about as long as a polite teardown takes.
const USUAL: Duration = Duration::from_secs(1);
/// Nobody is told to try again at once …
const LEAST: Duration = Duration::from_millis(100);
/// … or much later: others may be closed before.
const MOST: Duration = Duration::from_secs(60);

/// When a session is known to end, if nobody closes or uses it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Ends {
    /// Its time to live is over.
    ttl: Option<Moment>,
    /// It is idle for too long, if it is not used from its opening on.
    idle: Option<Moment>,
    /// All the budgets of its teardown are used up.
    gone: Option<Moment>,
}

impl Ends {
    pub(super) fn admitted(now: Moment, quota: &Quota) -> Self {
        let after = |span: Option<Duration>| span.map(|span| now.after(span));
        // The linger of what sessions share begins with the end of the last of them.
        let idle = quota.lifetime.idle.filter(|_| !quota.shared);
        Self { ttl: after(quota.lifetime.ttl), idle: after(idle), gone: None }
    }

    /// Its teardown begins.
    pub(super) fn torn_down(&mut self, now: Moment, lifetime: &Lifetime) {
        self.gone = Some(now.after(lifetime.teardown)).filter(|_| !lifetime.teardown.is_zero());
    }

    fn soonest(&self, now: Moment, phase: Phase) -> Option<Moment> {
        match phase {
            // One that was used since then ends later: what passes its gate is not told here.
            Phase::Starting | Phase::Live => {
                [self.ttl, self.idle.filter(|at| *at > now)].into_iter().flatten().min()
            }
            Phase::Dying => self.gone,
            Phase::Quarantined => None,
        }
    }
}

impl Registry {
    /// Refuses an open for want of room; of any other refusal nothing is added.
    pub(super) fn refuse_full(&self, now: Moment, open: &Open, mut refusal: Refusal, out: &mut Effects) {
        if let Refusal::CapacityExhausted { scope, limit, retry_after, .. } = &mut refusal {
            *retry_after = self.retry_after(now, open, *scope, *limit);
        }
        out.refuse(open.request, refusal);
    }

    /// The soonest end of those that count against the limit. Of other users' sessions nothing is told, but to administrators (G40).
    fn retry_after(&self, now: Moment, open: &Open, scope: CapacityScope, limit: usize) -> Duration {
        let never = match scope {
            CapacityScope::SessionProcesses => true,
            CapacityScope::Processes => open.quota.processes > limit,
            _ => limit == 0,
        };
        if never {
            return MOST;
        }
        let soonest = match scope {
            CapacityScope::Queue => self.queue.next_of(open.key.uid),
            _ => {
                let counted = self.entries.values().filter(|entry| counts(entry, open, scope));
                counted.filter_map(|entry| entry.ends.soonest(now, entry.phase)).min()
            }
        };
        soonest.map_or(USUAL, |at| at.since(now)).clamp(LEAST, MOST)
    }
}

fn counts(entry: &Entry, open: &Open, scope: CapacityScope) -> bool {
    let own = entry.claim.uid == open.key.uid;
    let in_sight = own || open.quota.administrator;
    match scope {
        CapacityScope::User => own,
        CapacityScope::Tenant => own && entry.claim.tenant == open.tenant,
        CapacityScope::Profile => in_sight && entry.claim.quota.profile == open.quota.profile,
        CapacityScope::Processes => in_sight && entry.claim.quota.processes > 0,
        _ => in_sight,
    }
}
