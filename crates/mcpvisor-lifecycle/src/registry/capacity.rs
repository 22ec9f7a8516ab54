//! How much is taken of each limit: slots in total, per user, per tenant and per profile, and processes (G6).
use super::types::{CapacityScope, Counts, Open, Phase, Quota, Refusal, RegistryConfig};
use crate::{ProfileName, Tenant, Uid};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one session takes from the limits, from its admission to the proof of its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) uid: Uid,
    pub(super) tenant: Option<Tenant>,
    pub(super) quota: Quota,
}

impl Claim {
    pub(super) fn of(open: &Open) -> Self {
        Self { uid: open.key.uid, tenant: open.tenant.clone(), quota: open.quota.clone() }
    }
}

/// What is taken. A session holds its claim whatever its phase.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Usage {
    phases: [usize; 4],
    /// The same of servers that sessions share, which take no slot.
    shared: [usize; 4],
    users: BTreeMap<Uid, usize>,
    tenants: BTreeMap<(Uid, Tenant), usize>,
    profiles: BTreeMap<ProfileName, usize>,
    /// Sessions that administrators opened.
    administrators: usize,
    processes: usize,
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
    fn phases(&mut self, claim: &Claim) -> &mut [usize; 4] {
        if claim.quota.shared { &mut self.shared } else { &mut self.phases }
    }

    pub(super) fn take(&mut self, claim: &Claim, phase: Phase) {
        self.phases(claim)[index(phase)] += 1;
        self.processes = self.processes.saturating_add(claim.quota.processes);
        if claim.quota.shared {
            return;
        }
        *self.users.entry(claim.uid).or_default() += 1;
        if let Some(tenant) = &claim.tenant {
            *self.tenants.entry((claim.uid, tenant.clone())).or_default() += 1;
        }
        if let Some(profile) = &claim.quota.profile {
            *self.profiles.entry(profile.clone()).or_default() += 1;
        }
        self.administrators += usize::from(claim.quota.administrator);
    }

    pub(super) fn give_back(&mut self, claim: &Claim, phase: Phase) {
        let count = &mut self.phases(claim)[index(phase)];
        *count = count.saturating_sub(1);
        self.processes = self.processes.saturating_sub(claim.quota.processes);
        if claim.quota.shared {
            return;
        }
        less(&mut self.users, &claim.uid);
        if let Some(tenant) = &claim.tenant {
            less(&mut self.tenants, &(claim.uid, tenant.clone()));
        }
        if let Some(profile) = &claim.quota.profile {
            less(&mut self.profiles, profile);
        }
        self.administrators = self.administrators.saturating_sub(usize::from(claim.quota.administrator));
    }

    pub(super) fn shift(&mut self, claim: &Claim, from: Phase, to: Phase) {
        let phases = self.phases(claim);
        let count = &mut phases[index(from)];
        *count = count.saturating_sub(1);
        phases[index(to)] += 1;
    }

    pub(super) fn total(&self) -> usize {
        self.phases.iter().sum()
    }

    pub(super) fn processes(&self) -> usize {
        self.processes
    }

    pub(super) fn counts(&self, limit: usize) -> Counts {
        let [starting, live, dying, quarantined] = self.phases;
        let [shared @ .., shared_quarantined] = self.shared;
        let shared = shared.iter().sum();
        Counts { starting, live, dying, quarantined, limit, shared, shared_quarantined }
    }

    /// Whether one more session fits every limit.
    pub(super) fn room(&self, config: &RegistryConfig, claim: &Claim) -> Result<(), Refusal> {
        if claim.quota.shared {
            return self.room_for_processes(config, claim);
        }
        let (asked, most) = (claim.quota.processes, config.max_processes_per_session);
        if asked > most {
            return Err(full(CapacityScope::SessionProcesses, asked, most));
        }
        self.room_in_total(config, claim.quota.administrator)?;
        let used = self.users.get(&claim.uid).copied().unwrap_or_default();
        within(CapacityScope::User, used, config.max_sessions_per_user)?;
        self.room_in_tenant(config, claim)?;
        self.room_in_profile(config, claim)?;
        self.room_for_processes(config, claim)
    }

    /// The same for one that gets the slot of a session that is gone: that slot is there, whatever the limits are by now, so only
    /// what it did not take is looked at.
    pub(super) fn room_after(
        &self,
        config: &RegistryConfig,
        claim: &Claim,
        predecessor: &Claim,
    ) -> Result<(), Refusal> {
        if claim.tenant != predecessor.tenant {
            self.room_in_tenant(config, claim)?;
        }
        if claim.quota.profile != predecessor.quota.profile {
            self.room_in_profile(config, claim)?;
        }
        if claim.quota.processes > predecessor.quota.processes {
            self.room_for_processes(config, claim)?;
        }
        Ok(())
    }

    /// Administrators' sessions take the slots that are reserved for them first.
    fn room_in_total(&self, config: &RegistryConfig, administrator: bool) -> Result<(), Refusal> {
        if administrator {
            return within(CapacityScope::Total, self.total(), config.max_sessions);
        }
        let reserved = config.reserved_for_administrators;
        let used = self.total() - self.administrators.min(reserved).min(self.total());
        within(CapacityScope::Total, used, config.max_sessions.saturating_sub(reserved))
    }

    fn room_in_tenant(&self, config: &RegistryConfig, claim: &Claim) -> Result<(), Refusal> {
        let Some(tenant) = &claim.tenant else { return Ok(()) };
        let used = self.tenants.get(&(claim.uid, tenant.clone())).copied().unwrap_or_default();
        within(CapacityScope::Tenant, used, config.max_sessions_per_tenant)
    }

    fn room_in_profile(&self, config: &RegistryConfig, claim: &Claim) -> Result<(), Refusal> {
        let Some(profile) = &claim.quota.profile else { return Ok(()) };
        let Some(limit) = config.max_sessions_per_profile.get(profile) else { return Ok(()) };
        let used = self.profiles.get(profile).copied().unwrap_or_default();
        within(CapacityScope::Profile, used, *limit)
    }

    fn room_for_processes(&self, config: &RegistryConfig, claim: &Claim) -> Result<(), Refusal> {
        let (used, limit) = (self.processes, config.max_processes);
        let fits = used.saturating_add(claim.quota.processes) <= limit;
        if fits { Ok(()) } else { Err(full(CapacityScope::Processes, used, limit)) }
    }
}

fn within(scope: CapacityScope, used: usize, limit: usize) -> Result<(), Refusal> {
    if used < limit { Ok(()) } else { Err(full(scope, used, limit)) }
}

pub(super) fn full(scope: CapacityScope, used: usize, limit: usize) -> Refusal {
    // When to try again is told with it.
    Refusal::CapacityExhausted { scope, used, limit, retry_after: Duration::ZERO }
}
