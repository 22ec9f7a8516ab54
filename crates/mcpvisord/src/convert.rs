//! From the supervisor's views to the shapes of the control protocol, one file per shape.
mod approval;
mod certificate;
mod event;
mod failure;
mod frame;
mod listings;
mod names;
mod session;
mod status;

pub(crate) use approval::approval;
pub(crate) use certificate::{close_report, ended_server, proof, waited};
pub(crate) use event::event;
pub(crate) use failure::{error, open_error};
pub(crate) use listings::{down, log_line, process, tool};
pub(crate) use names::{key as wire_key, key_name, server as wire_server_name, server_name, tenant_name};
pub(crate) use session::{server, session, state as session_state};
pub(crate) use status::{queued, status};

use std::time::{Duration, SystemTime};

/// RFC 3339 with milliseconds, in UTC. A time that the calendar does not reach is the epoch.
fn timestamp(at: SystemTime) -> String {
    format!("{:.3}", jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

/// Whole milliseconds.
fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds with three digits of a fraction.
fn exact_milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

fn count(number: usize) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests;
