use super::*;
use crate::framing::{Frame, Framer};

fn of(line: &str) -> Salvaged {
    let mut framer = Framer::new(8);
    let line = format!("{line}\n");
    let mut input = line.as_bytes();
    match framer.next_frame(&mut input) {
        Some(Frame::TooLong(over)) => salvage(&over),
        other => panic!("{other:?}"),
    }
}

fn big() -> String {
    "x\\\"y,{}".repeat(3000)
}

fn id(text: &str) -> Option<Id> {
    Some(Id::String(text.into()))
}

#[test]
fn the_id_is_found_before_the_payload() {
    let found = of(&format!(r#"{{"jsonrpc":"2.0","id":"mcpvisor-3","result":{{"t":"{}"}}}}"#, big()));
    assert_eq!(found, Salvaged { id: id("mcpvisor-3"), object: true, method: false });
    let found = of(&format!(r#"{{ "a":[1,{{"id":9}}], "id" : 3 , "result":"{}"}}"#, big()));
    assert_eq!(found.id, Some(Id::Number("3".into())));
}

#[test]
fn the_id_is_found_behind_the_payload() {
    for end in [
        r#","jsonrpc":"2.0","id":"mcpvisor-3"}"#,
        r#" , "id" : "mcpvisor-3" } "#,
        r#","id":"mcpvisor-3","jsonrpc":"2.0"}"#,
    ] {
        let found = of(&format!(r#"{{"result":{{"t":"{}"}}{end}"#, big()));
        assert_eq!(found, Salvaged { id: id("mcpvisor-3"), object: true, method: false }, "{end}");
    }
    let found = of(&format!(r#"{{"result":"{}","id":-12}}"#, big()));
    assert_eq!(found.id, Some(Id::Number("-12".into())));
}

#[test]
fn an_id_that_is_not_the_messages_is_not_taken() {
    for line in [
        format!(r#"{{"result":{{"t":"{}","id":"mcpvisor-3"}}}}"#, big()),
        format!(r#"{{"result":{{"id":"mcpvisor-3","t":"{}"}}}}"#, big()),
        format!(r#"{{"result":"{},\"id\":\"mcpvisor-3\"}}"#, big()),
        format!(r#"{{"result":["{}",{{"id":"mcpvisor-3"}}"#, big()),
        format!(r#"{{"result":"{}\"id\":7}}"#, big()),
    ] {
        assert_eq!(of(&line).id, None, "{}", &line[line.len() - 40..]);
    }
}

#[test]
fn requests_and_noise_are_told_from_answers() {
    assert!(of(&format!(r#"{{"jsonrpc":"2.0","method":"m","params":"{}"}}"#, big())).method);
    assert_eq!(of(&"x".repeat(9000)), Salvaged::default());
    assert_eq!(of(&format!(r#"["{}"]"#, big())), Salvaged::default());
    assert_eq!(of("\u{feff}{\"id\":1,\"method\":\"aaaaaaaaaaaaa\"}").id, Some(Id::Number("1".into())));
}
