use super::*;
use mcpvisor_process::InstanceId;

fn left(session: &str, note: Option<&str>) -> Left {
    Left {
        id: LeftId { instance: InstanceId("00000000000000aa".into()), session: session.into() },
        note: note.map(str::to_owned),
        containment: ContainmentKind::Cgroup,
    }
}

fn id(uid: u32, generation: u64) -> SessionId {
    SessionId { uid: Uid(uid), generation: Generation(generation) }
}

/// G36: what is noted is what is read.
#[test]
fn g36_a_note_tells_whose_the_session_was() {
    let text = r#"{"version":1,"key":"k","tenant":"t","labels":{"a":"b"},"created_at":1000,
        "servers":[{"name":"main","mode":"direct"}],"later":"what is added does no harm"}"#;
    let found = former(&[left("1000-3", Some(text))]);
    let [former] = &found[..] else { panic!("{found:?}") };
    assert_eq!((former.id, former.key.uid, former.key.key.as_str()), (id(1000, 3), Uid(1000), "k"));
    assert_eq!(former.tenant.as_ref().map(Tenant::as_str), Some("t"));
    assert_eq!(former.labels.get("a").map(String::as_str), Some("b"));
    assert_eq!(former.servers, [(ServerName::new("main").unwrap(), Mode::Direct)]);
    assert_eq!(former.created_at, UNIX_EPOCH + Duration::from_secs(1));
}

/// G36: what can't be read is seen all the same, below its owner, with its generation.
#[test]
fn g36_a_note_that_can_not_be_read_is_not_passed_over() {
    let newer = r#"{"version":2,"key":"k"}"#;
    for note in [None, Some(""), Some("{\"version\":1,\"ke"), Some(newer), Some(r#"{"version":1,"key":"/"}"#)]
    {
        let found = former(&[left("1000-3", note)]);
        let [former] = &found[..] else { panic!("{note:?}: {found:?}") };
        assert_eq!(former.id, id(1000, 3));
        assert_eq!(former.key.key.as_str(), "unknown:00000000000000aa:1000-3");
    }
    assert!(former(&[left("1000", None), left("-", None), left("1000-3-4", None)]).is_empty());
}

/// The registry needs keys and sessions that are distinct, whatever the notes say.
#[test]
fn names_that_come_twice_are_told_apart() {
    let note = r#"{"version":1,"key":"k"}"#;
    let other = Left {
        id: LeftId { instance: InstanceId("bb".into()), ..left("1000-3", None).id },
        ..left("", Some(note))
    };
    let found = former(&[left("1000-3", Some(note)), other, left("1000-4", Some(note))]);
    let names: Vec<_> = found.iter().map(|former| (former.id, former.key.key.to_string())).collect();
    let unknown = |instance: &str, session: &str| format!("unknown:{instance}:{session}");
    assert_eq!(
        names,
        [
            (id(1000, 3), "k".to_owned()),
            (id(1000, 5), unknown("bb", "1000-3")),
            (id(1000, 4), unknown("00000000000000aa", "1000-4")),
        ]
    );
}
