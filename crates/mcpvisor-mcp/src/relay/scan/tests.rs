use super::*;
use proptest::prelude::*;

/// What the scanner tells of each line and element, with the input cut at these places.
fn scan(bytes: &[u8], cuts: &[usize]) -> Vec<(Mark, Class, Kind, String, String)> {
    let mut scanner = Scanner::default();
    let mut told = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        let mut piece = &bytes[from..to];
        from = to;
        while !piece.is_empty() {
            let (used, mark) = scanner.feed(piece);
            piece = &piece[used..];
            let Some(mark) = mark else { break };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            told.push((mark, scanner.class(), scanner.kind(), text(scanner.id()), text(scanner.method())));
        }
    }
    told
}

#[track_caller]
fn line(text: &str) -> (Class, Kind, String, String) {
    let text = format!("{text}\n");
    let told = scan(text.as_bytes(), &[]);
    assert_eq!(told.len(), 1, "{text}: {told:?}");
    let (mark, class, kind, id, method) = told.into_iter().next().unwrap();
    assert_eq!(mark, Mark::LineEnd);
    (class, kind, id, method)
}

#[test]
fn keys_in_any_order_and_values_of_any_shape() {
    for (text, kind, id, method) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a/b","params":{}}"#, Kind::Request, "1", "a/b"),
        (
            r#"{"params":{"id":9,"method":"no","x":[{"id":8}]},"method":"m","id":"1"}"#,
            Kind::Request,
            "\"1\"",
            "m",
        ),
        (r#" { "id" : -1.5e3 , "method" : "m" } "#, Kind::Request, "-1.5e3", "m"),
        (r#"{"method":"m","params":{"s":"}\"{\\"}}"#, Kind::Notification, "", "m"),
        (r#"{"result":{"id":5},"jsonrpc":"2.0","id":7}"#, Kind::Response, "7", ""),
        (r#"{"result":null,"id":7}"#, Kind::Response, "7", ""),
        (r#"{"id":7,"error":{"code":1,"message":"m"}}"#, Kind::Response, "7", ""),
        (r#"{"id":null,"error":{"code":1,"message":"m"}}"#, Kind::Other, "null", ""),
        (r#"{"\u0069d":3,"m\u0065thod":"m"}"#, Kind::Request, "3", "m"),
        (r#"{"id":"a\"}\\","method":"m"}"#, Kind::Request, r#""a\"}\\""#, "m"),
        (r#"{"id":{"a":1},"method":"m"}"#, Kind::Other, "", "m"),
        (r#"{"id":true,"method":"m"}"#, Kind::Other, "true", "m"),
        (r#"{"id":1}"#, Kind::Other, "1", ""),
        (r#"{"x":"id","y":["method"]}"#, Kind::Other, "", ""),
        ("{}", Kind::Other, "", ""),
    ] {
        assert_eq!(line(text), (Class::Message, kind, id.to_owned(), method.to_owned()), "{text}");
    }
}

#[test]
fn lines_that_are_no_messages() {
    for (text, class) in
        [("", Class::Blank), (" \t\r", Class::Blank), ("loading {", Class::Noise), ("\"x\"", Class::Noise)]
    {
        assert_eq!(line(text).0, class, "{text:?}");
    }
    let told = scan(b"\xef\xbb\xbf{\"id\":1,\"method\":\"m\"}\r\n\xef\xbb\xbf{}\n\xff\xfe\n", &[]);
    let classes: Vec<_> = told.iter().map(|told| told.1).collect();
    assert_eq!(classes, [Class::Message, Class::Noise, Class::Noise], "only the first line may have a mark");
    assert_eq!(told[0].2, Kind::Request);
}

#[test]
fn a_batch_is_told_message_by_message() {
    let told =
        scan(b"[{\"id\":1,\"method\":\"a\"} , {\"method\":\"b\"},{\"id\":2,\"result\":[{}]}]\n{}\n", &[]);
    let kinds: Vec<_> = told.iter().map(|told| (told.0, told.2)).collect();
    assert_eq!(
        kinds[..3],
        [
            (Mark::Element, Kind::Request),
            (Mark::Element, Kind::Notification),
            (Mark::Element, Kind::Response)
        ]
    );
    assert_eq!(told[3].1, Class::Batch);
    assert_eq!((told[4].0, told[4].1), (Mark::LineEnd, Class::Message));
}

#[test]
fn a_line_that_is_no_json_does_not_hide_the_next_one() {
    for broken in [
        "{\"a\":\"",
        "{\"a\\",
        "{\"a\":\"x\\",
        "{\"a\":[{\"b",
        "{\"a\":{\"b\\",
        "{",
        "{\"id\":1",
        "{\"id\" 1}",
        "[{",
        "}}]]",
        "{}}]",
    ] {
        let told = scan(format!("{broken}\n{{\"id\":2,\"method\":\"m\"}}\n").as_bytes(), &[]);
        let last = told.last().unwrap();
        assert_eq!((last.2, last.3.as_str()), (Kind::Request, "2"), "{broken}");
        assert_eq!(told.len(), 2, "{broken}");
    }
}

#[test]
fn what_is_certain_is_told_before_the_end_and_nothing_is_kept() {
    let mut scanner = Scanner::default();
    scanner.feed(b"{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"text\":\"");
    assert_eq!(scanner.known(), Some(Kind::Response));
    let mut other = Scanner::default();
    other.feed(b"{\"method\":\"m\",\"params\":{\"text\":\"");
    assert_eq!(other.known(), None, "an id may follow");
    let big = vec![b'x'; 1 << 20];
    for _ in 0..4 {
        scanner.feed(&big);
        other.feed(&big);
    }
    let room =
        |scanner: &Scanner| scanner.id.capacity() + scanner.method.capacity() + scanner.word.capacity();
    assert!(room(&scanner) + room(&other) < 4096);
    other.feed(b"\"},\"id\":1}");
    assert_eq!(other.known(), Some(Kind::Request));
}

#[test]
fn an_id_that_is_too_long_is_not_followed_and_its_memory_is_given_back() {
    let long = "9".repeat(LONGEST_ID + 1);
    let (_, kind, id, _) = line(&format!("{{\"method\":\"m\",\"id\":\"{long}\"}}"));
    assert_eq!(kind, Kind::Unfollowed);
    assert!(id.len() <= LONGEST_ID);
    let mut scanner = Scanner::default();
    scanner.feed(format!("{{\"id\":\"{}\"}}\n", "9".repeat(4000)).as_bytes());
    scanner.feed(b"{}\n");
    assert!(scanner.id.capacity() <= 2 * KEEP);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-z\"\\\\{}\\[\\]\\n,: é]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::vec(("[a-z\"\\\\]{0,6}", inner), 0..4)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn message() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        prop_oneof![
            any::<u8>().prop_map(|n| n.to_string()),
            "[a-z\"\\\\]{1,5}".prop_map(|s| serde_json::json!(s).to_string())
        ]
        .prop_map(|id| ("id", id)),
        "[a-z/]{1,8}".prop_map(|method| ("method", format!("\"{method}\""))),
        json().prop_map(|value| ("params", value.to_string())),
        json().prop_map(|value| ("result", value.to_string())),
        Just(("jsonrpc", "\"2.0\"".to_owned())),
    ];
    prop::collection::vec(field, 0..5).prop_map(|mut fields| {
        let mut seen = Vec::new();
        fields.retain(|(name, _)| {
            !seen.contains(name) && {
                seen.push(*name);
                true
            }
        });
        let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    })
}

proptest! {
    /// Whatever the bytes are, the cuts change nothing.
    #[test]
    fn any_cut_gives_the_same(
        lines in prop::collection::vec(
            prop_oneof![
                message().prop_map(String::into_bytes),
                prop::collection::vec(message(), 0..3).prop_map(|all| format!("[{}]", all.join(",")).into_bytes()),
                prop::collection::vec(any::<u8>(), 0..20),
                "[\\[\\]{}\",:\\\\ idmetho1]{0,30}".prop_map(String::into_bytes),
            ],
            0..6,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = lines.join(&b'\n');
        bytes.push(b'\n');
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let whole = scan(&bytes, &[]);
        prop_assert_eq!(&scan(&bytes, &cuts), &whole);
        let every: Vec<_> = (1..bytes.len()).collect();
        prop_assert_eq!(&scan(&bytes, &every), &whole);
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
        prop_assert_eq!(whole.iter().filter(|told| told.0 == Mark::LineEnd).count(), ends);
    }

    /// The same as a whole parser says.
    #[test]
    fn a_parser_agrees(text in message()) {
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (_, kind, id, method) = line(&text);
        let has = |name: &str| value.get(name).is_some();
        let expected = match (has("method"), has("id"), has("result")) {
            // What comes first decides where both are there, which no message has.
            (true, true, true) => kind,
            (true, true, false) => Kind::Request,
            (true, false, _) => Kind::Notification,
            (false, true, true) => Kind::Response,
            _ => Kind::Other,
        };
        prop_assert_eq!(kind, expected);
        if has("id") && kind != Kind::Other {
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&id).unwrap(), &value["id"]);
        }
        if kind == Kind::Request {
            prop_assert_eq!(method.as_str(), value["method"].as_str().unwrap());
        }
    }
}
