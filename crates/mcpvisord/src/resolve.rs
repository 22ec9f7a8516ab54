//! From what a client asks to open to what is started: every server whole, no variable left.
mod own;
mod profile;
mod streams;

pub(crate) use profile::{entry, own_environment};
pub(crate) use streams::{attached, streams};

use crate::config::Config;
use crate::peer::Peer;
use crate::rights::Rights;
use mcpvisor_control::params::{self, SessionOpen};
use mcpvisor_control::{ErrorKind, ErrorObject};
use mcpvisor_lifecycle::Uid;
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::session::MOST_SERVERS;
use mcpvisor_supervisor::{Origin, Pattern, Policy, Prefix, ServerSpec};
use std::collections::HashSet;
use std::time::Duration;

/// What a session consists of.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) servers: Vec<ServerSpec>,
    /// The profile that the first of them come from.
    pub(crate) origin: Option<Origin>,
    pub(crate) drain: Duration,
    /// How long it may be idle, where the request does not say.
    pub(crate) idle: Duration,
    pub(crate) pin: Duration,
    /// How names are published.
    pub(crate) prefix: Prefix,
    /// What holds for all servers together.
    pub(crate) policy: Policy,
}

fn invalid(message: impl Into<String>) -> ErrorObject {
    ErrorObject::new(ErrorKind::InvalidRequest, message)
}

fn unsupported(message: impl Into<String>) -> ErrorObject {
    ErrorObject::new(ErrorKind::Unsupported, message)
}

/// Resolves the servers of a request. Files that a profile names are read off the runtime.
pub(crate) async fn servers(
    config: &Config,
    rights: &Rights,
    peer: &Peer,
    owner: Uid,
    open: &SessionOpen,
) -> Result<Resolved, ErrorObject> {
    let mut servers = Vec::new();
    let mut origin = None;
    let mut timeouts = config.timeouts;
    let mut prefix = Prefix::default();
    let mut policy = Policy { approval_timeout: config.timeouts.approval_timeout, ..Policy::default() };
    match &open.profile {
        Some(name) => {
            let profile = config.profiles.get(name).ok_or_else(|| {
                let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                invalid(format!("there is no profile `{name}`"))
                    .with("help", format!("the daemon's configuration has these profiles: {known}"))
            })?;
            timeouts = profile.timeouts;
            prefix = profile.prefix;
            policy = profile.policy.clone();
            let credentials = rights.run_profile(peer, owner)?;
            servers.extend(profile::specs(config, name, profile, &open.args, credentials.clone()).await?);
            origin = Some(Origin {
                profile: name.clone(),
                args: open.args.clone(),
                credentials,
                servers: servers.len(),
            });
        }
        None if !open.args.is_empty() => {
            return Err(invalid("arguments are for a profile, and the request names none"));
        }
        None => {}
    }
    if !open.servers.is_empty() {
        let credentials = rights.run_own(peer, owner)?;
        let bounds = own::Bounds::of(peer, credentials.as_ref());
        for definition in &open.servers {
            servers.push(own::spec(config, open, definition, credentials.clone(), &bounds)?);
        }
    }
    if servers.is_empty() {
        return Err(
            invalid("a session needs a server").with("help", "name a profile, or a command after `--`")
        );
    }
    if servers.len() > MOST_SERVERS {
        return Err(invalid(format!("a session has at most {MOST_SERVERS} servers")));
    }
    let mut names = HashSet::new();
    if let Some(twice) = servers.iter().find(|server| !names.insert(server.name.clone())) {
        return Err(invalid(format!("two servers have the name {}", twice.name)));
    }
    let drain = open.drain_ms.map_or(timeouts.drain, Duration::from_millis);
    if let Some(asked) = open.prefix {
        prefix = match asked {
            params::Prefix::OnConflict => Prefix::OnConflict,
            params::Prefix::Always => Prefix::Always,
            params::Prefix::Never => Prefix::Never,
        };
    }
    hold(&mut policy, open, &servers)?;
    Ok(Resolved { servers, origin, drain, idle: timeouts.idle, pin: timeouts.pin, prefix, policy })
}

/// The servers of a profile for a session that was opened from it.
pub(crate) async fn of_origin(config: &Config, origin: &Origin) -> Result<Vec<ServerSpec>, ErrorObject> {
    let Some(profile) = config.profiles.get(&origin.profile) else {
        return Err(invalid(format!("there is no profile `{}` any more", origin.profile)));
    };
    profile::specs(config, &origin.profile, profile, &origin.args, origin.credentials.clone()).await
}

/// The most patterns that an open may add.
const MOST_PATTERNS: usize = 64;

/// Adds the patterns of tools that the request has held. What the daemon does not speak to it can't hold.
fn hold(policy: &mut Policy, open: &SessionOpen, servers: &[ServerSpec]) -> Result<(), ErrorObject> {
    if open.hold.len() > MOST_PATTERNS {
        return Err(invalid(format!("an open names at most {MOST_PATTERNS} patterns to hold")));
    }
    for text in &open.hold {
        let pattern = Pattern::new(text).map_err(|error| invalid(format!("hold: {text:?}: {error}")))?;
        policy.hold.push(pattern);
    }
    match servers.iter().find(|server| open.direct.is_some() || server.mode != Mode::Shared) {
        Some(server) if !policy.hold.is_empty() => Err(unsupported(format!(
            "server {} is not shared: its calls can't be held, since the daemon never speaks to it",
            server.name
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
