use super::*;

fn show(line: &str) -> String {
    match Message::parse(line.as_bytes()) {
        Message::Request { raw_id, method, params } => {
            format!("request {raw_id} {method} {}", params.map_or("-", RawValue::get))
        }
        Message::Notification { method, params } => {
            format!("notification {method} {}", params.map_or("-", RawValue::get))
        }
        Message::Response { raw_id, outcome } => {
            let id = raw_id.map_or("null", RawValue::get);
            match outcome {
                Ok(result) => format!("result {id} {}", result.get()),
                Err(error) => format!("error {id} {}", error.get()),
            }
        }
        Message::Noise(kind) => format!("noise {kind:?}"),
    }
}

#[test]
fn kinds_are_told_apart() {
    for (line, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping -"),
        (
            r#" {"method":"a\/b","params":{"x":1.50},"id":"1","jsonrpc":"2.0"}"#,
            r#"request "1" a/b {"x":1.50}"#,
        ),
        (r#"{"jsonrpc":"2.0","method":"n","params":[ 1 ]}"#, "notification n [ 1 ]"),
        (r#"{"result":{"b":1,"a":0.70},"jsonrpc":"2.0","id":3}"#, r#"result 3 {"b":1,"a":0.70}"#),
        (r#"{"jsonrpc":"2.0","id":3,"result":null}"#, "result 3 null"),
        (r#"{"jsonrpc":"2.0","id":3,"result":{},"error":null}"#, "result 3 {}"),
        (
            r#"{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":1,"message":""}}"#,
            r#"error 3 {"code":1,"message":""}"#,
        ),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#, r#"error null {"code":-32700}"#),
        (r#"{"jsonrpc":"2.0","error":{"code":-32700}}"#, r#"error null {"code":-32700}"#),
        (r#"{"jsonrpc":"2.0","method":null,"id":1,"result":1}"#, "result 1 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","future":{"field":[]}}"#, "request 1 m -"),
    ] {
        assert_eq!(show(line), expected, "{line}");
    }
}

#[test]
fn what_is_no_message_is_noise() {
    for line in
        ["42", "null", "[]", r#""text""#, "[info] {not json}", "==== banner", "{", r#"{"a":}"#, "{} {}"]
    {
        assert_eq!(show(line), "noise NotAnObject", "{line}");
    }
    for line in [
        r#"{"level":"info","msg":"boot"}"#,
        "{}",
        r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":true,"result":1}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
    ] {
        assert_eq!(show(line), "noise NotJsonRpc", "{line}");
    }
    assert!(matches!(Message::parse(b"\xff\xfe latin"), Message::Noise(NoiseKind::NotUtf8)));
    assert!(matches!(
        Message::parse(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"),
        Message::Noise(NoiseKind::NotUtf8)
    ));
}

/// G43: nesting of any depth costs no stack.
#[test]
fn deep_nesting_is_harmless() {
    let depth = 1_000_000;
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(matches!(Message::parse(line.as_bytes()), Message::Response { .. }));
    let noise = "[".repeat(depth);
    assert!(matches!(Message::parse(noise.as_bytes()), Message::Noise(_)));
    let unknown =
        format!(r#"{{"x":{}{},"jsonrpc":"2.0","id":1,"result":1}}"#, "[".repeat(depth), "]".repeat(depth));
    // Whether it is read or refused, it must not overflow.
    let _ = Message::parse(unknown.as_bytes());
}
