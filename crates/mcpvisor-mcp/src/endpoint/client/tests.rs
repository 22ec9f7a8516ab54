use super::*;
use crate::catalogue::Prefix;
use crate::endpoint::Face;
use crate::handshake::{Negotiated, Offers};
use std::sync::Arc;

fn endpoint(era: Era, protocol: &str, servers: usize) -> Endpoint<()> {
    let raw = RawValue::from_string("{}".to_owned()).unwrap();
    let negotiated = Negotiated {
        era,
        protocol: protocol.into(),
        offers: Offers::default(),
        server: None,
        raw: Arc::from(raw),
    };
    let face = |n: usize| Face::new(format!("s{n}").into(), Some(negotiated.clone()));
    Endpoint::new((0..servers).map(face).collect(), Prefix::Never, 10)
}

fn said(todo: &[Todo<'_>]) -> String {
    let [Todo::Say(line)] = todo else { panic!("{todo:?}") };
    String::from_utf8(line.clone()).unwrap()
}

#[test]
fn a_ping_is_answered_here_in_the_legacy_era_alone() {
    let ping = br#"{"jsonrpc":"2.0","id":"7","method":"ping"}"#;
    let modern = br#"{"jsonrpc":"2.0","id":"7","method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let mut legacy = endpoint(Era::Legacy, "2025-11-25", 1);
    assert_eq!(
        said(&legacy.client_line(ping, || Ok(()))),
        "{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{}}\n"
    );
    let mut one = endpoint(Era::Modern, "2026-07-28", 1);
    let todo = one.client_line(modern, || Ok(()));
    assert!(matches!(todo[..], [Todo::Ask { server: 0, .. }]), "{todo:?}");
    let mut several = endpoint(Era::Modern, "2026-07-28", 2);
    assert!(said(&several.client_line(modern, || Ok(()))).contains("-32601"));
}
