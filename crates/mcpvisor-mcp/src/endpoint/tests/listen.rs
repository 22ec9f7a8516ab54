//! Streams of notifications, which modern clients ask for.
use super::*;

fn listen() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{META}}}}}"#
    )
}

fn acknowledged(id: u32, notifications: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":"mcpvisor-{id}"}},"notifications":{notifications}}}}}"#
    )
}

fn changed(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":"mcpvisor-{id}"}}}}}}"#
    )
}

fn ends(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"mcpvisor-{id}","result":{{"resultType":"complete","_meta":{{"io.modelcontextprotocol/subscriptionId":"mcpvisor-{id}"}}}}}}"#
    )
}

fn listening() -> World {
    let mut world = World::modern(&["a", "b"]);
    assert!(world.client(&listen()).is_empty());
    for server in 0..2 {
        let asked = world.one(server);
        assert_eq!((&asked["id"], &asked["method"]), (&json!("mcpvisor-2"), &json!("subscriptions/listen")));
    }
    world
}

/// G42: of one server the subscription's id is the client's, in each notification and in the result.
#[test]
fn g42_one_server() {
    let mut world = World::modern(&["a"]);
    world.client(&listen());
    world.wrote(0);
    for line in [acknowledged(2, r#"{"toolsListChanged":true}"#), changed(2), ends(2)] {
        assert_eq!(only(&world.server(0, &line)), line.replace("\"mcpvisor-2\"", "\"L\""));
    }
    assert!(world.server(0, &changed(2)).is_empty(), "it is over");
    assert_eq!(world.permits(), (1, 1, 0));
    // Another subscription's is nobody's here.
    assert!(world.server(0, &changed(1)).is_empty());
}

#[test]
fn one_acknowledgement_of_what_any_of_them_sends_before_anything_else() {
    for first in [0, 1] {
        let mut world = listening();
        let (one, other) = (first, 1 - first);
        assert!(
            world
                .server(one, &acknowledged(2, r#"{"toolsListChanged":true,"resourceSubscriptions":["a"]}"#))
                .is_empty()
        );
        assert!(world.server(one, &changed(2)).is_empty(), "held");
        assert!(
            world.server(other, &changed(2)).is_empty(),
            "held, though it comes before its acknowledgement"
        );
        let heard = world
            .server(other, &acknowledged(2, r#"{"promptsListChanged":true,"resourceSubscriptions":["b"]}"#));
        assert_eq!(heard.len(), 3);
        let told = json(&heard[0]);
        assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "L");
        assert_eq!(
            told["params"]["notifications"],
            json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a", "b"]})
        );
        assert_eq!(heard[1], changed(2).replace("\"mcpvisor-2\"", "\"L\""));
        assert_eq!(only(&world.server(one, &changed(2))), changed(2).replace("\"mcpvisor-2\"", "\"L\""));
        // It ends with the last of them.
        assert!(world.server(other, &ends(2)).is_empty());
        assert_eq!(only(&world.server(one, &changed(2))), changed(2).replace("\"mcpvisor-2\"", "\"L\""));
        assert_eq!(only(&world.server(one, &ends(2))), ends(2).replace("\"mcpvisor-2\"", "\"L\""));
        assert_eq!(world.permits(), (1, 1, 0));
    }
}

#[test]
fn a_server_that_ends_before_it_has_acknowledged() {
    let mut world = listening();
    assert!(world.server(0, &acknowledged(2, r#"{"toolsListChanged":true}"#)).is_empty());
    assert!(world.server(0, &changed(2)).is_empty());
    let heard = world.server_dies(1);
    assert_eq!(heard.len(), 2, "the other's is all there is");
    assert_eq!(heard[0], acknowledged(2, r#"{"toolsListChanged":true}"#).replace("\"mcpvisor-2\"", "\"L\""));
    let last = world.server_dies(0);
    assert_eq!(error(only(&last)), (1015, "server_exited".to_owned()));
    assert_eq!(world.permits(), (1, 1, 0));
}

/// One that has acknowledged and ends is not waited for, and does not stand for the other.
#[test]
fn a_server_that_ends_after_it_has_acknowledged() {
    let mut world = listening();
    assert!(world.server(0, &acknowledged(2, r#"{"toolsListChanged":true}"#)).is_empty());
    assert!(world.server_dies(0).is_empty(), "the other has acknowledged nothing");
    let heard = world.server(1, &acknowledged(2, r#"{"promptsListChanged":true}"#));
    assert_eq!(
        only(&heard),
        acknowledged(2, r#"{"promptsListChanged":true}"#).replace("\"mcpvisor-2\"", "\"L\"")
    );
    // Once more from the same one is no second server's.
    let mut world = listening();
    for _ in 0..2 {
        assert!(world.server(0, &acknowledged(2, r#"{"toolsListChanged":true}"#)).is_empty());
    }
    assert_eq!(world.server(1, &acknowledged(2, "{}")).len(), 1);
}

#[test]
fn a_server_that_runs_again_is_listened_to_again() {
    let mut world = listening();
    for server in 0..2 {
        world.server(server, &acknowledged(2, r#"{"toolsListChanged":true}"#));
    }
    assert!(world.server_dies(0).is_empty(), "the stream goes on with the other");
    assert!(world.server_runs_again(0).is_empty());
    let again = world.one(0);
    assert_eq!(
        (&again["method"], &again["params"]["notifications"]),
        (&json!("subscriptions/listen"), &json!({"toolsListChanged": true}))
    );
    // No second acknowledgement; its lists may be others.
    let heard = world.server(0, &acknowledged(2, r#"{"toolsListChanged":true,"promptsListChanged":false}"#));
    assert_eq!(only(&heard), changed(2).replace("\"mcpvisor-2\"", "\"L\""));
    assert!(world.server(1, &ends(2)).is_empty());
    assert_eq!(world.server(0, &ends(2)).len(), 1);
    assert_eq!((world.permits(), world.endpoint.in_flight()), ((1, 1, 0), 0));
}

#[test]
fn a_client_cancels_its_stream_at_all_servers() {
    let mut world = listening();
    let words = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"L",{META}}}}}"#
    );
    assert!(world.client(&words).is_empty());
    for server in 0..2 {
        assert_eq!(only(&world.wrote(server)), words.replace("\"L\"", "\"mcpvisor-2\""));
        assert!(world.server(server, &changed(2)).is_empty() && world.server(server, &ends(2)).is_empty());
    }
    assert_eq!(world.permits(), (1, 0, 1));
}

/// A stream would never end by itself: it does not keep a client that has said all.
#[test]
fn a_client_that_has_said_all_has_no_streams() {
    let mut world = listening();
    world.client(&format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{{META}}}}}"#));
    let heard = world.said_all();
    assert_eq!(
        (error(only(&heard)), json(&heard[0])["id"].clone()),
        ((1013, "cancelled".to_owned()), json!("L"))
    );
    for server in 0..2 {
        assert_eq!(world.one(server)["method"], "notifications/cancelled");
    }
    assert_eq!((world.endpoint.in_flight(), world.permits()), (0, (1, 1, 0)));
}

/// G43: what is held for a server that does not acknowledge is bounded.
#[test]
fn g43_what_is_held_is_bounded() {
    let mut world = listening();
    let big =
        changed(2).replace("\"params\":{", &format!("\"params\":{{\"x\":\"{}\",", "x".repeat(300 << 10)));
    for _ in 0..100 {
        assert!(world.server(0, &big).is_empty() && world.server(0, &changed(2)).is_empty());
    }
    world.server(0, &acknowledged(2, "{}"));
    let heard = world.server(1, &acknowledged(2, "{}"));
    assert_eq!(heard.len(), 65);
    assert!(heard.iter().map(String::len).sum::<usize>() < 1100 << 10);
}
