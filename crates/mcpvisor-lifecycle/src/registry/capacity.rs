//! How many slots are taken, in total, per user and per tenant (G6).
use super::types::{CapacityScope, Counts, Phase, Refusal, RegistryConfig};
use crate::{Tenant, Uid};
use std::collections::BTreeMap;

/// The slots that are taken. A session holds one from its admission to the proof of its end, whatever its phase.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Usage {
    phases: [usize; 4],
    users: BTreeMap<Uid, usize>,
    tenants: BTreeMap<(Uid, Tenant), usize>,
}

fn index(phase: Phase) -> usize {
    match phase {
        Phase::Starting => 0,
        Phase::Live => 1,
        Phase::Dying => 2,
        Phase::Quarantined => 3,
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Usage {
    pub(super) fn take(&mut self, uid: Uid, tenant: Option<&Tenant>, phase: Phase) {
        self.phases[index(phase)] += 1;
        *self.users.entry(uid).or_default() += 1;
        if let Some(tenant) = tenant {
            *self.tenants.entry((uid, tenant.clone())).or_default() += 1;
        }
    }

    pub(super) fn give_back(&mut self, uid: Uid, tenant: Option<&Tenant>, phase: Phase) {
        let count = &mut self.phases[index(phase)];
        *count = count.saturating_sub(1);
        less(&mut self.users, &uid);
        if let Some(tenant) = tenant {
            less(&mut self.tenants, &(uid, tenant.clone()));
        }
    }

    pub(super) fn shift(&mut self, from: Phase, to: Phase) {
        let count = &mut self.phases[index(from)];
        *count = count.saturating_sub(1);
        self.phases[index(to)] += 1;
    }

    pub(super) fn total(&self) -> usize {
        self.phases.iter().sum()
    }

    pub(super) fn counts(&self, limit: usize) -> Counts {
        let [starting, live, dying, quarantined] = self.phases;
        Counts { starting, live, dying, quarantined, limit }
    }

    /// Whether one more session fits every limit.
    pub(super) fn room(
        &self,
        config: &RegistryConfig,
        uid: Uid,
        tenant: Option<&Tenant>,
    ) -> Result<(), Refusal> {
        within(CapacityScope::Total, self.total(), config.max_sessions)?;
        let used = self.users.get(&uid).copied().unwrap_or_default();
        within(CapacityScope::User, used, config.max_sessions_per_user)?;
        self.room_in_tenant(config, uid, tenant)
    }

    pub(super) fn room_in_tenant(
        &self,
        config: &RegistryConfig,
        uid: Uid,
        tenant: Option<&Tenant>,
    ) -> Result<(), Refusal> {
        let Some(tenant) = tenant else { return Ok(()) };
        let used = self.tenants.get(&(uid, tenant.clone())).copied().unwrap_or_default();
        within(CapacityScope::Tenant, used, config.max_sessions_per_tenant)
    }
}

fn within(scope: CapacityScope, used: usize, limit: usize) -> Result<(), Refusal> {
    if used < limit { Ok(()) } else { Err(Refusal::CapacityExhausted { scope, used, limit }) }
}
