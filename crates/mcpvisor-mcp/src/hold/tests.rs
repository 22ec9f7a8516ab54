use super::*;

fn matches(pattern: &str, name: &str) -> bool {
    Pattern::new(pattern).unwrap().matches(name)
}

#[test]
fn patterns_mean_what_they_say() {
    for (pattern, yes, no) in [
        ("delete", &["delete"][..], &["", "delete_", "Delete", "xdelete"][..]),
        ("delete_*", &["delete_", "delete_file", "delete_*"], &["delete", "undelete_file"]),
        ("*", &["", "a", "ä*"], &[]),
        ("*_file", &["_file", "delete_file", "a_file_file"], &["file", "_files"]),
        ("a*b*c", &["abc", "axxbyyc", "abcbc", "abbc"], &["ab", "acb", "abcd"]),
        ("f?o", &["foo", "fäo"], &["fo", "fooo"]),
        ("?*", &["a", "ab"], &[""]),
        ("**x**", &["x", "axb"], &["", "y"]),
        ("[ab]", &["[ab]"], &["a"]),
    ] {
        for name in yes {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for name in no {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}

#[test]
fn a_pattern_is_text_of_some_length() {
    assert_eq!(Pattern::new(""), Err(BadPattern));
    assert_eq!(Pattern::new("a\u{1b}"), Err(BadPattern));
    assert_eq!(Pattern::new(&"x".repeat(257)), Err(BadPattern));
    assert_eq!(Pattern::new(&"x".repeat(256)).unwrap().as_str().len(), 256);
}

/// G43: many stars and a long name take no time to speak of.
#[test]
fn g43_no_pattern_takes_for_ever() {
    let pattern = "*a".repeat(128);
    assert!(!matches(&pattern, &format!("{}b", "a".repeat(10_000))));
    assert!(matches(&pattern, &"a".repeat(10_000)));
}

#[test]
fn what_is_called_is_told_only_where_it_is_certain() {
    let name = |line: &str| called(line.as_bytes()).map(|called| called.name.into_owned());
    let of = |params: &str| {
        name(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#))
    };
    assert_eq!(of(r#"{"name":"x","arguments":{"name":"y"}}"#).as_deref(), Some("x"));
    assert_eq!(of(r#"{"n\u0061me":"\u0064elete"}"#).as_deref(), Some("delete"));
    for unclear in [
        r#"{"name":"x","name":"delete"}"#,
        r#"{"name":"x","Name":"delete"}"#,
        r#"{"NAME":"delete"}"#,
        r#"{"name":1}"#,
        r#"{"name":["delete"]}"#,
        "{}",
        "[\"delete\"]",
        "null",
    ] {
        assert_eq!(of(unclear), None, "{unclear}");
    }
    let line = br#"{"params":{"arguments":{"a": [1]},"name":"t"}}"#;
    assert_eq!(called(line).unwrap().arguments, Some(r#"{"a": [1]}"#));
}
