//! Names have the same forms on both sides, and each side checks its own.
use mcpvisor_control as control;
use mcpvisor_lifecycle as lifecycle;

const SAME: &str = "both sides have the same rule for names";

/// A key for the wire.
pub(crate) fn key(key: &lifecycle::SessionKey) -> control::SessionKey {
    control::SessionKey::new(key.as_str()).expect(SAME)
}

/// A server's name for the wire.
pub(crate) fn server(name: &lifecycle::ServerName) -> control::ServerName {
    control::ServerName::new(name.as_str()).expect(SAME)
}

/// A tenant for the wire.
pub(crate) fn tenant(tenant: &lifecycle::Tenant) -> control::Tenant {
    control::Tenant::new(tenant.as_str()).expect(SAME)
}

/// A key from the wire.
pub(crate) fn key_name(key: &control::SessionKey) -> lifecycle::SessionKey {
    lifecycle::SessionKey::new(key.as_str()).expect(SAME)
}

/// A server's name from the wire.
pub(crate) fn server_name(name: &control::ServerName) -> lifecycle::ServerName {
    lifecycle::ServerName::new(name.as_str()).expect(SAME)
}

/// A tenant from the wire.
pub(crate) fn tenant_name(tenant: &control::Tenant) -> lifecycle::Tenant {
    lifecycle::Tenant::new(tenant.as_str()).expect(SAME)
}
