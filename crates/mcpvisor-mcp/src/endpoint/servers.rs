//! What servers say.
use super::client::{INVALID_PARAMS, METHOD_NOT_FOUND, PREFIX};
use super::{
    Acknowledged, AskedOf, Call, CallKey, Ended, Endpoint, Kind, LONGEST_ID, LONGEST_LISTEN, Listen,
    MOST_ASKED, MOST_SUBSCRIPTIONS, Todo, Todos, error_line, own_error, plain_error, result_line, too_long,
};
use crate::envelope::Message;
use crate::handshake::Negotiated;
use crate::peer::{Answer, Asked, Forward, Told};
use crate::relay::Because;
use crate::splice::{span_of, splice};
use crate::version::Era;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The most notifications of a stream that are held before it is acknowledged, and the most bytes of them.
const MOST_HELD: usize = 64;
const MOST_HELD_BYTES: usize = 1 << 20;

/// What becomes of a server's request.
#[derive(Debug)]
pub enum Reply {
    /// The line for the client, who is to answer it.
    Client(Vec<u8>),
    /// The line for the server: nobody can answer it.
    Server(Vec<u8>),
}

/// What is said where servers' requests want no answer any more.
#[derive(Debug)]
pub struct NoLongerAsked {
    /// The answers to them, and whose they are.
    pub for_servers: Vec<(usize, Vec<u8>)>,
    /// The client's part: each of them is cancelled.
    pub for_client: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    progress: Option<&'a RawValue>,
}

/// The parts of a server's request that say what a client must have to answer it.
#[derive(Deserialize, Default)]
struct Wants<'a> {
    mode: Option<String>,
    tools: Option<IgnoredAny>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

impl<P> Endpoint<P> {
    /// A server's answer to a call. `None` where the call was cancelled, or other servers are still to answer it.
    pub fn answered(&mut self, call: CallKey, server: usize, answer: &Answer<'_>) -> Option<Ended<P>> {
        let known = self.calls.get_mut(&call)?;
        if let Some(lines) = known.one_less(server) {
            return Some(Ended { lines: lines.into(), permit: None });
        }
        // One that is to stand in an array is read: it would break the others.
        if let (Answer::Unread { line, raw_id }, Kind::Plain, None) = (answer, &known.kind, known.batch) {
            return self.answer_with(call, |id| match span_of(line, raw_id) {
                Some(span) => splice(line, &mut [(span, id.get().as_bytes())]),
                None => own_error(id, Because::ServerExited),
            });
        }
        let (line, raw_id, outcome) = match *answer {
            Answer::Line { line, raw_id, outcome } => (line, raw_id, outcome),
            Answer::Unread { line, .. } => match Message::parse(line) {
                Message::Response { raw_id, outcome } => (line, raw_id, outcome),
                // Its head promised an answer, and the rest breaks that: nobody can tell what it is.
                _ => return self.answer_with(call, bad_answer),
            },
            Answer::TooLong(bytes) => {
                let text = format!("the server's answer has {bytes} bytes, more than the longest line");
                return self.answer_with(call, |id| too_long(id, &text));
            }
        };
        if outcome.is_ok() {
            self.succeeded(call, server);
        }
        let subscription = match (&self.calls.get(&call)?.kind, outcome) {
            (Kind::Listen(_), Ok(result)) => subscription_of(result),
            _ => None,
        };
        self.answer_with(call, |id| {
            let Some(span) = raw_id.and_then(|raw| span_of(line, raw.get())) else {
                // An answer without an id could only mean this call.
                return match outcome {
                    Ok(result) => result_line(id, result.get()),
                    Err(error) => error_line(id, error.get()),
                };
            };
            let mut parts = vec![(span, id.get().as_bytes())];
            parts.extend(subscription.and_then(|raw| Some((span_of(line, raw.get())?, id.get().as_bytes()))));
            splice(line, &mut parts)
        })
    }

    /// A call that its server will not answer any more. `None` where it was cancelled, or other servers are still to answer it.
    pub fn unanswered(&mut self, call: CallKey, server: usize, because: Because) -> Option<Ended<P>> {
        let known = self.calls.get_mut(&call)?;
        if let Some(lines) = known.one_less(server) {
            return Some(Ended { lines: lines.into(), permit: None });
        }
        self.refused(call, because)
    }

    fn succeeded(&mut self, call: CallKey, server: usize) {
        match self.calls.get(&call).map(|known| known.kind.clone()) {
            Some(Kind::SetLevel(level)) => self.log_level = Some(level),
            Some(Kind::Subscribe(uri)) if self.subscriptions.len() < MOST_SUBSCRIPTIONS => {
                self.subscriptions.insert(uri, server);
            }
            Some(Kind::Unsubscribe(uri)) => {
                self.subscriptions.remove(&uri);
            }
            _ => {}
        }
    }

    /// A notification of a server; `about` is the call that it names. The lines for the client.
    pub fn told(&mut self, server: usize, told: &Told<'_>, about: Option<CallKey>) -> Vec<Vec<u8>> {
        if self.client.lost || self.client.era.is_none() {
            return Vec::new();
        }
        if let Some((call, (_, raw))) = about.zip(told.about) {
            return self.told_about(call, server, told, raw);
        }
        // A server of the other era is none of this client's.
        if self.faces[server].negotiated.as_ref().map(|known| known.era) != self.client.era {
            return Vec::new();
        }
        match told.method {
            // Of a call that is over, or of another's.
            "notifications/progress" => Vec::new(),
            "notifications/cancelled" => self.server_cancelled(server, told).into_iter().collect(),
            // Of a stream that is over.
            _ if self.is_modern() && told.params.and_then(subscription_of).is_some() => Vec::new(),
            _ => vec![splice(told.line, &mut [])],
        }
    }

    fn told_about(&mut self, call: CallKey, server: usize, told: &Told<'_>, raw: &RawValue) -> Vec<Vec<u8>> {
        let Some(known) = self.calls.get_mut(&call) else { return Vec::new() };
        let with = match (told.method, &known.progress) {
            ("notifications/progress", Some(token)) => token.get(),
            ("notifications/progress", None) => return Vec::new(),
            _ => known.raw_id.get(),
        };
        let Some(span) = span_of(told.line, raw.get()) else { return Vec::new() };
        let line = splice(told.line, &mut [(span, with.as_bytes())]);
        let Kind::Listen(listen) = &mut known.kind else { return vec![line] };
        let acknowledges = told.method == "notifications/subscriptions/acknowledged";
        if listen.done && acknowledges && listen.forward.is_some() {
            // Of a server that has started again: the client has its one acknowledgement, and learns that lists may be others now.
            return changed_lists(&acknowledged(told.params), &known.raw_id);
        }
        if listen.done {
            return vec![line];
        }
        if acknowledges {
            let notifications = acknowledged(told.params);
            listen.acknowledged.retain(|known| known.server != server);
            listen.acknowledged.push(Acknowledged { server, notifications, line });
            return listen.acknowledge(&known.raw_id, known.listening);
        }
        let bytes: usize = listen.held.iter().map(Vec::len).sum();
        if listen.held.len() < MOST_HELD && bytes + line.len() <= MOST_HELD_BYTES {
            listen.held.push(line);
        }
        Vec::new()
    }

    /// A server gives up a request of its own: the client is told, by the id that it knows.
    fn server_cancelled(&mut self, server: usize, told: &Told<'_>) -> Option<Vec<u8>> {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request: &'a RawValue,
        }
        let Cancelled { request } = serde_json::from_str(told.params?.get()).ok()?;
        let same = |asked: &AskedOf| asked.server == server && asked.raw_id.get() == request.get();
        let number = self.asked.iter().find(|(_, asked)| same(asked)).map(|(number, _)| *number)?;
        self.asked.remove(&number);
        let id = format!("\"{PREFIX}{number}\"");
        Some(splice(told.line, &mut [(span_of(told.line, request.get())?, id.as_bytes())]))
    }

    /// A request of a server: for the client if it has declared what that takes, else answered with an error at once.
    pub fn asked(&mut self, server: usize, asked: &Asked<'_>) -> Reply {
        let wants: Wants<'_> =
            asked.params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        let client = &self.client;
        let (able, what) = match asked.method {
            "roots/list" => (client.roots, "roots"),
            "sampling/createMessage" if wants.tools.is_some() => (client.sampling_tools, "sampling.tools"),
            "sampling/createMessage" => (client.sampling, "sampling"),
            "elicitation/create" if wants.mode.as_deref() == Some("url") => {
                (client.elicitation_url, "elicitation.url")
            }
            "elicitation/create" => (client.elicitation_form, "elicitation"),
            _ => (client.protocol.is_some(), asked.method),
        };
        if client.lost || !able {
            let message = format!("the client that is attached has not declared {what}");
            return Reply::Server(plain_error(asked.raw_id, METHOD_NOT_FOUND, &message, None));
        }
        if let Some(because) = self.mute {
            return Reply::Server(own_error(asked.raw_id, because));
        }
        if self.asked.len() >= MOST_ASKED {
            return Reply::Server(own_error(asked.raw_id, Because::Overloaded));
        }
        let number = self.next;
        self.next += 1;
        let id = format!("\"{PREFIX}{number}\"");
        let progress = wants.meta.and_then(|meta| meta.progress);
        if progress.is_some_and(|token| token.get().len() > LONGEST_ID) {
            let message = format!("a progress token has at most {LONGEST_ID} bytes");
            return Reply::Server(plain_error(asked.raw_id, INVALID_PARAMS, &message, None));
        }
        let mut parts = Vec::new();
        parts.extend(span_of(asked.line, asked.raw_id.get()).map(|span| (span, id.as_bytes())));
        parts.extend(progress.and_then(|raw| Some((span_of(asked.line, raw.get())?, id.as_bytes()))));
        let line = splice(asked.line, &mut parts);
        let known =
            AskedOf { server, raw_id: asked.raw_id.to_owned(), progress: progress.map(ToOwned::to_owned) };
        self.asked.insert(number, known);
        Reply::Client(line)
    }

    /// A server has ended: what it asked is not to be answered any more. Its calls end by [`Endpoint::unanswered`]. The lines for the client.
    pub fn server_gone(&mut self, server: usize) -> Vec<Vec<u8>> {
        self.faces[server].negotiated = None;
        let mut gone: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.server == server)
            .map(|(number, _)| *number)
            .collect();
        gone.sort_unstable();
        let told = gone.into_iter().map(|number| {
            self.asked.remove(&number);
            no_longer_asked(number, "the server has ended")
        });
        told.collect()
    }

    /// The session is being closed: everything that servers wait for from the client is settled, and the client hears that nobody waits for
    /// its answers any more.
    pub fn session_closes(&mut self) -> NoLongerAsked {
        let mut numbers: Vec<u64> = self.asked.keys().copied().collect();
        numbers.sort_unstable();
        let told = numbers.iter().map(|number| no_longer_asked(*number, Because::Closing.message()));
        let for_client = told.collect();
        NoLongerAsked { for_servers: self.settle_asked(Because::Closing), for_client }
    }

    /// Everything that servers wait for from the client is settled, and so is what they ask from now on: the lines for them.
    pub fn settle_asked(&mut self, because: Because) -> Vec<(usize, Vec<u8>)> {
        self.mute = Some(because);
        let mut asked: Vec<(u64, AskedOf)> = self.asked.drain().collect();
        asked.sort_unstable_by_key(|(number, _)| *number);
        asked.into_iter().map(|(_, asked)| (asked.server, own_error(&asked.raw_id, because))).collect()
    }

    /// A server that had ended runs again: it is told the level of the log and the subscriptions, and the client that its lists may be
    /// others now.
    pub fn server_ready(&mut self, server: usize, negotiated: Negotiated) -> Todos<'static> {
        let (offers, era) = (negotiated.offers, negotiated.era);
        self.faces[server].negotiated = Some(negotiated);
        let mut todo = Todos::new();
        if self.client.lost || self.client.era != Some(era) {
            return todo;
        }
        if era == Era::Modern {
            return self.listen_again(server);
        }
        if let Some(level) = self.log_level.as_ref().filter(|_| offers.logging) {
            let level: Value = serde_json::from_str(level.get()).unwrap_or_default();
            let params = Map::from_iter([("level".to_owned(), level)]);
            todo.push(Todo::Own { server, method: "logging/setLevel", params });
        }
        for (uri, _) in self.subscriptions.iter().filter(|(_, owner)| **owner == server) {
            let params = Map::from_iter([("uri".to_owned(), Value::from(uri.as_str()))]);
            todo.push(Todo::Own { server, method: "resources/subscribe", params });
        }
        todo.extend(self.legacy_lists(offers).map(Todo::Say));
        todo
    }
}

impl<P> Endpoint<P> {
    /// The streams of several servers go on with one that runs again.
    fn listen_again(&mut self, server: usize) -> Todos<'static> {
        let mut again = Vec::new();
        for (call, known) in &mut self.calls {
            let Kind::Listen(Listen { forward: Some(forward), .. }) = &known.kind else { continue };
            known.listening += 1;
            again.push((*call, forward.clone()));
        }
        again.sort_unstable_by_key(|(call, _)| *call);
        again.into_iter().map(|(call, forward)| Todo::Ask { call, server, forward }).collect()
    }
}

/// Tells the client that a request of a server wants no answer any more.
fn no_longer_asked(number: u64, reason: &str) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":\"{PREFIX}{number}\",\
         \"reason\":\"{reason}\"}}}}\n"
    )
    .into_bytes()
}

impl<P> Call<P> {
    /// One of several servers has ended its part: what the client hears of that. None of the last one.
    fn one_less(&mut self, server: usize) -> Option<Vec<Vec<u8>>> {
        if self.listening < 2 {
            return None;
        }
        self.listening -= 1;
        self.at.retain(|(at, _)| *at != server);
        Some(match &mut self.kind {
            Kind::Listen(listen) if !listen.done => {
                listen.acknowledged.retain(|known| known.server != server);
                listen.acknowledge(&self.raw_id, self.listening)
            }
            _ => Vec::new(),
        })
    }
}

impl Listen {
    /// A stream of some servers.
    pub(super) fn of(forward: &Forward<'_>) -> Self {
        let again = forward.line.len() <= LONGEST_LISTEN;
        Self { forward: again.then(|| forward.clone().into_owned()), ..Self::default() }
    }

    /// Once all `servers` have acknowledged: one acknowledgement of what any of them sends, and what was held.
    pub(super) fn acknowledge(&mut self, id: &RawValue, servers: usize) -> Vec<Vec<u8>> {
        if self.acknowledged.len() < servers || self.acknowledged.is_empty() {
            return Vec::new();
        }
        self.done = true;
        let mut all = std::mem::take(&mut self.acknowledged);
        self.agreed = all.iter().flat_map(|one| one.notifications.clone()).collect();
        let first = if let [only] = &mut all[..] {
            std::mem::take(&mut only.line)
        } else {
            let mut union = Map::new();
            for (kind, value) in all.into_iter().flat_map(|one| one.notifications) {
                match (union.get_mut(&kind), value) {
                    (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
                    (_, value) => drop(union.insert(kind, value)),
                }
            }
            let notifications = Value::from(union);
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"_meta\":{{\
                 \"io.modelcontextprotocol/subscriptionId\":{}}},\"notifications\":{notifications}}}}}\n",
                id.get()
            )
            .into_bytes()
        };
        std::iter::once(first).chain(std::mem::take(&mut self.held)).collect()
    }
}

/// That the lists have changed of which a server agrees to tell.
pub(super) fn changed_lists(notifications: &Map<String, Value>, id: &RawValue) -> Vec<Vec<u8>> {
    let lists = [
        ("toolsListChanged", "tools"),
        ("promptsListChanged", "prompts"),
        ("resourcesListChanged", "resources"),
    ];
    let agreed = lists.iter().filter(|(field, _)| notifications.get(*field) == Some(&Value::Bool(true)));
    let lines = agreed.map(|(_, list)| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{list}/list_changed\",\"params\":{{\"_meta\":{{\
             \"io.modelcontextprotocol/subscriptionId\":{}}}}}}}\n",
            id.get()
        )
        .into_bytes()
    });
    lines.collect()
}

/// What a server agrees to send.
fn acknowledged(params: Option<&RawValue>) -> Map<String, Value> {
    #[derive(Deserialize)]
    struct Acknowledged {
        notifications: Map<String, Value>,
    }
    params
        .and_then(|params| serde_json::from_str::<Acknowledged>(params.get()).ok())
        .map(|acknowledged| acknowledged.notifications)
        .unwrap_or_default()
}

/// The subscription that a result, or the parameters of a notification, name.
fn subscription_of(named: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Meta<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
        id: Option<&'a RawValue>,
    }
    serde_json::from_str::<Named<'_>>(named.get()).ok()?.meta.id
}

fn bad_answer(id: &RawValue) -> Vec<u8> {
    let error = serde_json::json!({ "code": 1018, "message": "the server's answer is not valid JSON", "data": { "kind": "server_error", "from": "mcpvisor" } });
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}\n", id.get()).into_bytes()
}
