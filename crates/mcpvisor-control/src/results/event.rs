//! What has happened.
use super::is_zero;
use crate::message::Id;
use crate::names::{ServerName, SessionKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that has happened. docs/events.md tells the kinds, and what each has in `data`; more may come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number among the events of its user, in this run of the daemon; the first is 1, and there is no gap.
    pub seq: u64,
    /// The run of the daemon.
    pub instance: String,
    /// When it happened.
    pub at: String,
    /// What has happened: `session.ready`, …
    pub kind: String,
    /// The session that it is about.
    pub key: Option<SessionKey>,
    /// Its generation; null also where it never had one.
    pub generation: Option<u64>,
    /// The server that it is about.
    pub server: Option<ServerName>,
    /// What there is to say. Texts are not escaped.
    #[serde(default)]
    pub data: Map<String, Value>,
    /// How many events of the user were not kept long enough to be told just before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

/// Answer of `event/subscribe`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Subscribed {
    /// This run of the daemon.
    pub instance: String,
    /// The number of the first event that had not happened yet.
    pub next: u64,
    /// The number of the oldest event that was kept; `next` where there was none.
    pub oldest: u64,
    /// Those that were asked for; empty where they come as notifications.
    #[serde(default)]
    pub events: Vec<Event>,
    /// How many events of the user, of all kinds, were not kept long enough to be told behind the last of these, or at all where there is none.
    #[serde(default)]
    pub lost: u64,
}

/// Parameters of the `event` notification.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EventNotification {
    /// The `event/subscribe` that it belongs to.
    #[serde(rename = "requestId")]
    pub request_id: Id,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Parameters of the `event/ended` notification: there will be no more.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EventsEnded {
    /// The `event/subscribe` that is over.
    #[serde(rename = "requestId")]
    pub request_id: Id,
}
