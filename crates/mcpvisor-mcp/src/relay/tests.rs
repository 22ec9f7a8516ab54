use super::*;
use proptest::prelude::*;

/// A permit that can't be lost unseen: its number.
type Talk = Conversation<u32>;

struct World {
    talk: Talk,
    open: bool,
    admitted: u32,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    ended: Vec<Ended<u32>>,
    heard: Ear,
}

type Heard = (Way, scan::Class, Kind, String, String, u64);

/// Keeps what it hears.
#[derive(Default)]
struct Ear(Vec<Heard>);

impl Watch for Ear {
    fn line(&mut self, way: Way, head: &Head<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.push((way, head.class, head.kind, text(head.method), text(head.id), head.bytes));
    }
}

impl World {
    fn new() -> Self {
        Self {
            talk: Talk::new(100),
            open: true,
            admitted: 0,
            to_server: Vec::new(),
            to_client: Vec::new(),
            ended: Vec::new(),
            heard: Ear::default(),
        }
    }

    fn client(&mut self, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        let (open, admitted) = (self.open, &mut self.admitted);
        let admit = || {
            *admitted += u32::from(open);
            if open { Ok(*admitted) } else { Err(Because::Closing) }
        };
        let passed = self.talk.from_client(&mut bytes, admit, &mut self.heard);
        self.to_server.extend(passed.ahead);
        self.to_server.extend(&bytes[..passed.len]);
        self.own();
    }

    fn server(&mut self, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        let passed = self.talk.from_server(&mut bytes, &mut self.heard);
        self.to_client.extend(passed.ahead);
        self.to_client.extend(&bytes[..passed.len]);
        self.own();
    }

    fn own(&mut self) {
        self.to_client.extend(self.talk.take_for_client());
        self.to_server.extend(self.talk.take_for_server());
        self.ended.extend(self.talk.take_ended());
    }

    fn settle(&mut self) {
        self.talk.settle(Because::Settled);
        self.own();
    }

    #[track_caller]
    fn heard(&mut self) -> (String, String) {
        let text = |bytes: &mut Vec<u8>| String::from_utf8(std::mem::take(bytes)).unwrap();
        (text(&mut self.to_server), text(&mut self.to_client))
    }
}

fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

#[test]
fn a_call_passes_is_counted_and_ends_with_its_answer() {
    let mut world = World::new();
    let call = "{\"jsonrpc\":\"2.0\",\"id\":1,  \"method\":\"x\",\"params\":{\"a\":1.50}}\r\n";
    world.client(call);
    assert_eq!(world.talk.in_flight(), 1);
    let answer = "{\"result\":{},\"jsonrpc\":\"2.0\",\"id\":1}\n";
    world.server(answer);
    assert_eq!(world.heard(), (call.to_owned(), answer.to_owned()));
    assert_eq!((world.talk.in_flight(), &world.ended[..]), (0, &[Ended::Answered(1)][..]));
}

/// However the lines are cut into reads, a watcher hears of each once, with its size; of the client's only of those that pass.
#[test]
fn a_watcher_hears_of_each_line_once() {
    let up = "{\"method\":\"tools/call\",\"params\":{\"x\":[1]},\"id\":1}\n{\"method\":\"n\"}\n";
    let down = "banner\n\n{\"result\":{\"id\":7},\"id\":1}\n[{\"id\":3}]\n";
    for size in [1, 7, 1000] {
        let mut world = World::new();
        let pieces = |text: &str| -> Vec<String> {
            text.as_bytes().chunks(size).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect()
        };
        pieces(up).iter().for_each(|piece| world.client(piece));
        pieces(down).iter().for_each(|piece| world.server(piece));
        world.open = false;
        world.client("{\"method\":\"late\",\"id\":2}\n");
        let told: Vec<_> = world
            .heard
            .0
            .iter()
            .map(|(way, class, kind, method, id, bytes)| {
                (*way, *class, *kind, method.as_str(), id.as_str(), *bytes)
            })
            .collect();
        let message = scan::Class::Message;
        assert_eq!(
            told,
            [
                (Way::Up, message, Kind::Request, "tools/call", "1", 50),
                (Way::Up, message, Kind::Notification, "n", "", 15),
                (Way::Down, scan::Class::Noise, Kind::Other, "", "", 7),
                (Way::Down, scan::Class::Blank, Kind::Other, "", "", 1),
                (Way::Down, message, Kind::Response, "", "1", 27),
                (Way::Down, scan::Class::Batch, told[5].2, "", "", 11),
            ],
            "in pieces of {size}"
        );
    }
}

#[test]
fn ids_keep_their_type_and_may_be_used_twice() {
    let mut world = World::new();
    world.client(
        "{\"id\":1,\"method\":\"a\"}\n{\"id\":\"1\",\"method\":\"b\"}\n{\"id\":1,\"method\":\"c\"}\n",
    );
    assert_eq!(world.talk.in_flight(), 3);
    world.server("{\"id\":\"1\",\"result\":{}}\n{\"id\":1.0,\"result\":{}}\n");
    assert_eq!(world.talk.in_flight(), 2, "1.0 is another id");
    world.server("{\"id\":1,\"result\":{}}\n");
    assert_eq!(world.talk.in_flight(), 1);
    world.heard();
    world.settle();
    let (to_server, to_client) = world.heard();
    assert_eq!(lines(&to_client)[0]["id"], 1);
    assert_eq!(lines(&to_server)[0]["params"]["requestId"], 1);
    assert_eq!(lines(&to_client).len(), 1);
}

/// G11, G19: each call has one answer, the server is told, and hears of its own requests.
#[test]
fn settled_calls_are_answered_once_and_cancelled() {
    let mut world = World::new();
    world.client("{\"id\":0,\"method\":\"initialize\"}\n{\"id\":\"a\",\"method\":\"tools/call\"}\n");
    world.server("{\"id\":7,\"method\":\"roots/list\"}\n");
    world.heard();
    world.settle();
    let (to_server, to_client) = world.heard();
    let errors = lines(&to_client);
    assert_eq!(
        errors.iter().map(|error| error["id"].clone()).collect::<Vec<_>>(),
        ["a".into(), serde_json::json!(0)]
    );
    for error in &errors {
        assert_eq!(
            (&error["error"]["data"]["kind"], &error["error"]["code"]),
            (&"cancelled".into(), &1013.into())
        );
    }
    let told = lines(&to_server);
    assert_eq!(told.len(), 2, "initialize is never cancelled: {to_server}");
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]["requestId"]),
        (&"notifications/cancelled".into(), &"a".into())
    );
    assert_eq!((&told[1]["id"], &told[1]["error"]["data"]["from"]), (&7.into(), &"mcpvisor".into()));
    // Late answers and requests pass no more, and a late answer of the client neither; notifications do.
    world.server("{\"id\":\"a\",\"result\":{}}\n{\"method\":\"n\"}\n{\"id\":8,\"method\":\"ping\"}\n");
    world.client("{\"id\":7,\"result\":{}}\n{\"method\":\"n2\"}\n");
    let (to_server, to_client) = world.heard();
    assert_eq!(to_client, "{\"method\":\"n\"}\n");
    let told = lines(&to_server);
    assert_eq!((told.len(), &told[0]["id"], &told[1]["method"]), (2, &8.into(), &"n2".into()));
}

/// G11: what is on its way to the client when the calls are settled is its answer.
#[test]
fn an_answer_that_is_half_delivered_counts() {
    for (head, tail) in
        [("{\"id\":1,\"result\":{\"t\":\"", "x\"}}\n"), ("{\"result\":{\"t\":\"", "x\"},\"id\":1}\n")]
    {
        let mut world = World::new();
        world.client("{\"id\":1,\"method\":\"a\"}\n{\"id\":2,\"method\":\"b\"}\n");
        world.server(head);
        world.settle();
        assert_eq!(world.heard().1, head, "nothing of ours gets into a line");
        world.server(tail);
        let heard = world.heard().1;
        let (rest, error) = heard.split_at(tail.len());
        assert_eq!(rest, tail);
        assert_eq!(lines(error)[0]["id"], 2);
        assert_eq!(lines(error).len(), 1);
        assert_eq!(world.ended, [Ended::Answered(1), Ended::Cancelled(2)]);
    }
}

/// G11: behind the boundary a call is refused and does not reach the server; all else passes.
#[test]
fn a_closed_gate_refuses_calls_only() {
    let mut world = World::new();
    world.client("{\"id\":1,\"method\":\"a\"}\n");
    world.server("{\"id\":5,\"method\":\"sampling/createMessage\"}\n");
    world.open = false;
    world.heard();
    world.client("{\"id\":2,\"method\":\"b\"}\n{\"id\":5,\"result\":{}}\n{\"method\":\"n\"}\n");
    let (to_server, to_client) = world.heard();
    assert_eq!(to_server, "{\"id\":5,\"result\":{}}\n{\"method\":\"n\"}\n");
    assert_eq!(
        (&lines(&to_client)[0]["id"], &lines(&to_client)[0]["error"]["code"]),
        (&2.into(), &1004.into())
    );
    // In pieces: held until it is known, then dropped or let through.
    for piece in ["{\"jsonrpc\":\"2.0\",", "\"id\":3,\"met", "hod\":\"c\",\"params\":\"", "xxx\"}\n"] {
        world.client(piece);
    }
    for piece in ["{\"id\":9,", "\"result\":\"", "yyy\"}\n"] {
        world.client(piece);
    }
    let (to_server, to_client) = world.heard();
    assert_eq!(to_server, "{\"id\":9,\"result\":\"yyy\"}\n");
    assert_eq!((lines(&to_client).len(), &lines(&to_client)[0]["id"]), (1, &3.into()));
    world.server("{\"id\":1,\"result\":{}}\n");
    assert_eq!(world.ended, [Ended::Answered(1)]);
}

/// A line that began to pass in front of the boundary is admitted.
#[test]
fn a_call_that_began_to_pass_is_admitted() {
    let mut world = World::new();
    world.client("{\"id\":1,\"method\":\"a\",\"params\":\"");
    assert_eq!(world.admitted, 1);
    world.open = false;
    world.client("xx\"}\n");
    assert_eq!((world.talk.in_flight(), world.ended.len()), (1, 0));
    world.open = true;
    world.client("{\"method\":\"n\",\"par");
    world.client("ams\":{}}\n");
    assert_eq!(world.ended, [Ended::NoCall(2)], "a notification holds nothing");
}

#[test]
fn a_call_too_many_is_refused() {
    let mut world = World::new();
    world.talk = Talk::new(1);
    world.client("{\"id\":1,\"method\":\"a\"}\n{\"id\":2,\"method\":\"b\"}\n");
    let (to_server, to_client) = world.heard();
    assert_eq!(to_server, "{\"id\":1,\"method\":\"a\"}\n");
    assert_eq!(lines(&to_client)[0]["error"]["data"]["kind"], "overloaded");
}

#[test]
fn a_call_that_its_client_cancels_is_not_waited_for() {
    let mut world = World::new();
    world.client("{\"id\":1,\"method\":\"a\"}\n{\"id\":2,\"method\":\"a\"}\n");
    let cancel = "{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n";
    world.client(cancel);
    assert_eq!(world.talk.in_flight(), 1);
    for byte in cancel.replace(":1}", ":2}").chars() {
        world.client(&byte.to_string());
    }
    assert_eq!(world.talk.in_flight(), 0);
    world.server("{\"id\":1,\"result\":{}}\n");
    assert!(world.heard().1.contains("result"), "a late answer passes");
}

/// G30: what is no message is counted and does not pass, and the stream goes on.
#[test]
fn noise_is_passed_over() {
    let mut world = World::new();
    world.server("starting\x1b[1m\n\n\u{feff}{}\n{\"method\":\"a\"}\nload");
    world.server("ing\n{\"method\":\"b\"}\n[{\"method\":\"c\"}]\n");
    assert_eq!(world.heard().1, "{\"method\":\"a\"}\n{\"method\":\"b\"}\n");
    assert_eq!(world.talk.counters().noise, 4);
    assert_eq!(world.talk.noise(), Some("starting\\x1b[1m"));
    let mut world = World::new();
    world.server("\u{feff}");
    world.server("{\"method\":\"a\"}\r\n");
    assert_eq!(
        world.heard().1,
        "\u{feff}{\"method\":\"a\"}\r\n",
        "a mark in front of the first message passes"
    );
}

#[test]
fn batches_pass_where_they_were_negotiated() {
    for (protocol, passes) in [("2025-03-26", true), ("2025-06-18", false)] {
        let mut world = World::new();
        world.client("{\"id\":0,\"method\":\"initialize\"}\n");
        let answer = format!("{{\"result\":{{\"protocolVersion\":\"{protocol}\"}},\"id\":0}}\n");
        let (head, tail) = answer.split_at(30);
        world.server(head);
        world.server(tail);
        world.client("[{\"id\":1,\"method\":\"a\"},{\"id\":2,\"method\":\"b\"}]\n");
        assert_eq!(world.talk.in_flight(), 2);
        world.heard();
        world.server("[{\"id\":1,\"result\":{}},{\"id\":2,\"result\":{}}]\n");
        assert_eq!(world.heard().1.is_empty(), !passes);
        assert_eq!(world.talk.in_flight(), if passes { 0 } else { 2 });
        world.open = false;
        world.client("[{\"id\":3,\"method\":\"a\"},{\"method\":\"b\"}]\n");
        let (to_server, to_client) = world.heard();
        assert_eq!((to_server.as_str(), &lines(&to_client)[0]["id"]), ("", &3.into()));
    }
}

/// What the client has begun to say when it ends is no call, and keeps nobody waiting.
#[test]
fn a_line_that_the_clients_end_cuts_off_is_no_call() {
    let mut world = World::new();
    world.client("{\"id\":1,\"method\":\"a\"}\n{\"id\":2,\"meth");
    world.talk.client_ended();
    world.own();
    assert_eq!((world.talk.in_flight(), &world.ended[..]), (1, &[Ended::NoCall(2)][..]));
    world.heard();
    world.server("{\"id\":1,\"result\":{}}\n");
    world.settle();
    assert_eq!(world.heard(), (String::new(), "{\"id\":1,\"result\":{}}\n".to_owned()));
}

#[test]
fn the_ends_of_both_sides() {
    let mut world = World::new();
    world.client("{\"id\":0,\"method\":\"initialize\"}\n{\"id\":1,\"method\":\"a\"}\n{\"id\":2,\"meth");
    world.server("{\"id\":3,\"method\":\"roots/list\"}\n");
    world.heard();
    world.talk.client_lost();
    world.own();
    let (to_server, to_client) = world.heard();
    assert_eq!(to_client, "");
    assert!(to_server.starts_with('\n'), "the torn line is ended first: {to_server}");
    let told = lines(&to_server[1..]);
    assert_eq!((told.len(), &told[0]["params"]["requestId"], &told[1]["id"]), (2, &1.into(), &3.into()));
    world.server("{\"id\":1,\"result\":{}}\n{\"method\":\"n\"}\n{\"id\":4,\"method\":\"ping\"}\n");
    let (to_server, to_client) = world.heard();
    assert_eq!((to_client.as_str(), &lines(&to_server)[0]["id"]), ("", &4.into()));
    assert_eq!(world.ended.len(), 3, "{:?}", world.ended);

    let mut world = World::new();
    world.client("{\"id\":1,\"method\":\"a\"}\n");
    world.server("{\"id\":1,\"result\":\"to");
    world.talk.server_ended();
    world.own();
    let heard = world.heard().1;
    let error = heard.strip_prefix("{\"id\":1,\"result\":\"to\n").expect("the torn line is ended first");
    assert_eq!((&lines(error)[0]["id"], &lines(error)[0]["error"]["code"]), (&1.into(), &1015.into()));
    assert_eq!(world.ended, [Ended::Cancelled(1)]);

    let mut world = World::new();
    world.server("{\"method\":\"to");
    world.talk.server_ended();
    world.own();
    assert_eq!(world.heard().1, "{\"method\":\"to", "with nothing to say a torn line is left as it is");
}

fn side() -> impl Strategy<Value = String> {
    let id =
        prop_oneof![(0..4_u8).prop_map(|id| id.to_string()), (0..4_u8).prop_map(|id| format!("\"{id}\""))];
    prop_oneof![
        id.clone().prop_map(|id| format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\",\"params\":{{\"id\":0}}}}"
        )),
        id.clone().prop_map(|id| format!("{{\"result\":{{\"a\":[1,\"}}\"]}},\"id\":{id}}}")),
        id.prop_map(|id| format!(
            "{{\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}"
        )),
        Just("{\"method\":\"n\"}".to_owned()),
        Just("noise".to_owned()),
        Just("[]".to_owned()),
    ]
}

proptest! {
    /// However the two streams are cut, what passes, what is said, and what is counted is the same. (G42)
    #[test]
    fn cuts_change_nothing(
        said in prop::collection::vec((any::<bool>(), side()), 0..12),
        cuts in prop::collection::vec(1..20_usize, 1..6),
        close_at in 0..14_usize,
        settle_at in 0..14_usize,
    ) {
        let play = |cut: bool| {
            let mut world = World::new();
            for (at, (from_client, text)) in said.iter().enumerate() {
                world.open &= at != close_at;
                if at == settle_at {
                    world.open = false;
                    world.settle();
                }
                let mut rest = format!("{text}\n");
                for size in cuts.iter().cycle() {
                    let piece = if cut { rest.drain(..rest.len().min(*size)).collect() } else { std::mem::take(&mut rest) };
                    if *from_client { world.client(&piece) } else { world.server(&piece) }
                    if rest.is_empty() {
                        break;
                    }
                }
            }
            let ended = world.ended.iter().filter(|ended| !matches!(ended, Ended::NoCall(_))).count();
            let counted = (world.talk.in_flight(), world.talk.counters(), ended);
            (world.heard(), counted)
        };
        prop_assert_eq!(play(true), play(false));
    }

    /// With an open gate all of the client's bytes pass, and all messages of the server (G42); every permit comes back.
    #[test]
    fn bytes_pass_unchanged(said in prop::collection::vec((any::<bool>(), side()), 0..12)) {
        let mut world = World::new();
        let (mut to_server, mut to_client) = (String::new(), String::new());
        for (from_client, text) in &said {
            let text = format!("{text}\n");
            if *from_client {
                world.client(&text);
                to_server.push_str(&text);
            } else {
                world.server(&text);
                if text.starts_with('{') {
                    to_client.push_str(&text);
                }
            }
        }
        prop_assert_eq!(world.heard(), (to_server, to_client));
        world.settle();
        let mut permits: Vec<u32> = world.ended.iter().map(|ended| match ended {
            Ended::Answered(n) | Ended::Cancelled(n) | Ended::NoCall(n) => *n,
        }).collect();
        permits.sort_unstable();
        prop_assert_eq!(permits, (1..=world.admitted).collect::<Vec<_>>());
    }
}
