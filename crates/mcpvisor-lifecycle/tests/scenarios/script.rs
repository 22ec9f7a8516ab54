//! What clients do, and how their requests are written down.
use super::process::Program;
use mcpvisor_lifecycle::registry::{
    CloseOptions, Goal, IfClosing, IfOpen, Open, Quota, RegistryEvent, Target, Urgency,
};
use mcpvisor_lifecycle::{Generation, KeyRef, Moment, RequestId, SessionKey, Uid};

/// One step of a client. A step that is not possible yet waits, and its client with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Send(RegistryEvent),
    /// Waits for a request's answer.
    Await(u64),
    /// Waits until nobody holds the key.
    UntilFree(&'static str),
    /// Waits until a process of the key's session was killed.
    UntilKilled(&'static str),
    /// Lets the key's hanging launches go on, well or badly.
    Let(&'static str, bool),
    /// The main processes of the key's servers exit by themselves.
    Exit(&'static str, bool),
    /// The client of the key's direct session closes its end, once its server is launched.
    HangUp(&'static str),
    /// Whatever could not be killed dies.
    Free(&'static str),
    /// A call, admitted by the gate or refused.
    Call(&'static str, u64),
    /// The server answers a call.
    Finish(u64),
    /// A session needs the server that sessions share under this key, and uses it until `Finish` of the same number. The request has that
    /// number, too.
    Hold(&'static str, u64),
    /// A server is to be added, or to stand in the place of the one that has the name.
    Add(&'static str, u64, &'static str, Program),
    Replace(&'static str, u64, &'static str, Program),
    Remove(&'static str, u64, &'static str),
    Restart(&'static str, u64, &'static str),
    /// Who asked for a change is gone.
    CancelChange(&'static str, u64),
    /// Waits for a change's answer.
    AwaitChange(u64),
    /// The actor of the key's session is gone.
    LoseSession(&'static str),
    /// The actor of the key's server is gone.
    LoseServer(&'static str),
}

pub(crate) fn key(text: &str) -> KeyRef {
    KeyRef { uid: Uid(1000), key: SessionKey::new(text).expect("keys of scenarios have a key's form") }
}

pub(crate) fn target(text: &str) -> Target {
    Target { key: key(text), generation: None }
}

pub(crate) fn exactly(text: &str, generation: u64) -> Target {
    Target { key: key(text), generation: Some(Generation(generation)) }
}

pub(crate) fn asked(request: u64, text: &str) -> Open {
    Open {
        request: RequestId(request),
        key: key(text),
        tenant: None,
        parent: None,
        quota: Quota::default(),
        queue: None,
        definition: 7,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        direct: false,
        wait: true,
        deadline: None,
        specs: Vec::new(),
    }
}

pub(crate) fn open(request: u64, text: &str) -> Act {
    Act::Send(RegistryEvent::Open(asked(request, text)))
}

/// An open of the session that has a server which others share.
pub(crate) fn open_shared(request: u64, text: &str) -> Open {
    Open { quota: Quota { processes: 1, shared: true, ..Quota::default() }, ..asked(request, text) }
}

pub(crate) fn open_below(request: u64, text: &str, parent: &str) -> Act {
    let parent = Some(key(parent).key);
    Act::Send(RegistryEvent::Open(Open { parent, ..asked(request, text) }))
}

pub(crate) fn open_or_fail(request: u64, text: &str) -> Act {
    Act::Send(RegistryEvent::Open(Open { if_closing: IfClosing::Fail, ..asked(request, text) }))
}

pub(crate) fn open_until(request: u64, text: &str, deadline: Moment) -> Act {
    Act::Send(RegistryEvent::Open(Open { deadline: Some(deadline), ..asked(request, text) }))
}

pub(crate) fn close_at(request: u64, target: Target) -> Act {
    Act::Send(RegistryEvent::Close {
        request: RequestId(request),
        target,
        options: CloseOptions::default(),
        wait: true,
        deadline: None,
    })
}

pub(crate) fn close(request: u64, text: &str) -> Act {
    close_at(request, target(text))
}

pub(crate) fn retry_kill(request: u64, text: &str) -> Act {
    let request = RequestId(request);
    Act::Send(RegistryEvent::RetryKill { request, target: target(text), deadline: None })
}

pub(crate) fn wait_closed(request: u64, target: Target) -> Act {
    let request = RequestId(request);
    Act::Send(RegistryEvent::Wait { request, target, goal: Goal::Closed, deadline: None })
}

pub(crate) fn cancel(request: u64) -> Act {
    Act::Send(RegistryEvent::Cancel { request: RequestId(request) })
}

pub(crate) fn shutdown() -> Act {
    Act::Send(RegistryEvent::Shutdown { urgency: Urgency::Drain })
}
