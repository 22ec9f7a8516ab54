//! In which era a server is asked first.
use super::Driver;
use mcpvisor_mcp::{Era, EraChoice, Negotiated};

impl Driver {
    /// Of the server that is launched now.
    pub(super) fn choose_era(&mut self) {
        let record = &self.arguments.record;
        let fixed = record.spec.era;
        if fixed != EraChoice::Auto {
            self.era = fixed;
        } else if self.machine.changed_era() {
            // Only the last process can say why it fails.
            self.cause = None;
            self.forget_era();
            let was_modern = self.era == EraChoice::ModernFirst;
            self.era = if was_modern { EraChoice::Auto } else { EraChoice::ModernFirst };
            tracing::info!(era = ?self.era, "the server is started once more, to be asked in the other era first");
        } else {
            let modern = self.arguments.eras.is_modern(self.arguments.session.id.uid, record.digest);
            self.era = if modern { EraChoice::ModernFirst } else { EraChoice::Auto };
        }
    }

    /// What it is asked first is only what it answered the last time.
    pub(super) fn era_is_remembered(&self) -> bool {
        self.era == EraChoice::ModernFirst && !self.machine.changed_era()
    }

    pub(super) fn remember_era(&self, negotiated: &Negotiated) {
        let (uid, spec) = (self.arguments.session.id.uid, self.arguments.record.digest);
        match negotiated.era {
            _ if self.arguments.record.spec.era != EraChoice::Auto => {}
            Era::Modern => self.arguments.eras.remember(uid, spec),
            Era::Legacy => self.arguments.eras.forget(uid, spec),
        }
    }

    /// It was never ready: what was remembered of it may be why.
    pub(super) fn forget_era(&self) {
        if self.era == EraChoice::ModernFirst {
            self.arguments.eras.forget(self.arguments.session.id.uid, self.arguments.record.digest);
        }
    }
}
