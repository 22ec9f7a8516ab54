use super::*;
use std::sync::Arc;
use tokio::task::JoinHandle;

fn server() -> ServerName {
    ServerName::new("files").unwrap()
}

/// A call that waits, once it is held.
async fn held(desk: &Arc<Desk>, tool: &'static str, patience: Duration) -> JoinHandle<Result<(), Refused>> {
    let before = desk.list().len();
    // One whose time is short may be over before it is seen.
    let waiting = Arc::clone(desk);
    let call = tokio::spawn(async move {
        let arguments = format!("{{\"text\":\"{}\"}}", "ä".repeat(4000));
        let server = server();
        let call = ToHold { server: &server, there: &|| true, tool, arguments: Some(&arguments), patience };
        waiting.approval(call).await
    });
    while desk.list().len() == before && !call.is_finished() {
        tokio::task::yield_now().await;
    }
    call
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_decision_reaches_the_one_who_waits_once() {
    let desk = Arc::new(Desk::default());
    let (one, two) = (held(&desk, "a", LONG).await, held(&desk, "b", LONG).await);
    let list = desk.list();
    assert_eq!(
        list.iter().map(|view| (view.number.0, &*view.tool)).collect::<Vec<_>>(),
        [(1, "a"), (2, "b")]
    );
    assert!(list[0].cut && list[0].arguments.as_ref().unwrap().len() <= SHOWN);
    assert_eq!(desk.decide(HoldNumber(1), Verdict::Approved, None), Decided::Now);
    assert_eq!(desk.decide(HoldNumber(2), Verdict::Denied, Some("no".into())), Decided::Now);
    assert_eq!(desk.decide(HoldNumber(1), Verdict::Denied, None), Decided::Before(Verdict::Approved));
    assert_eq!(one.await.unwrap(), Ok(()));
    assert_eq!(two.await.unwrap(), Err(Refused::Denied(HoldNumber(2), Some("no".into()))));
    assert_eq!(desk.held(), 0);
}

/// G19: a server that is removed takes its held calls along, with the reason; and one that is looked for too late is not held.
#[tokio::test]
async fn g19_a_removed_server_ends_what_is_held() {
    let desk = Arc::new(Desk::default());
    let call = held(&desk, "a", LONG).await;
    desk.server_gone(&ServerName::new("other").unwrap(), "was removed");
    assert_eq!(desk.held(), 1);
    desk.server_gone(&server(), "was removed");
    assert_eq!((desk.held(), desk.list().len()), (0, 0));
    assert_eq!(call.await.unwrap(), Err(Refused::ServerGone("was removed".to_owned())));
    assert_eq!(desk.decide(HoldNumber(1), Verdict::Approved, None), Decided::Before(Verdict::ServerGone));
    let late = ToHold { server: &server(), there: &|| false, tool: "a", arguments: None, patience: LONG };
    assert!(matches!(desk.approval(late).await, Err(Refused::ServerGone(_))));
}

#[tokio::test]
async fn a_caller_that_goes_withdraws_its_call() {
    let desk = Arc::new(Desk::default());
    let call = held(&desk, "a", LONG).await;
    call.abort();
    let _ = call.await;
    assert_eq!((desk.held(), desk.list().len()), (0, 0));
    assert_eq!(desk.decide(HoldNumber(1), Verdict::Approved, None), Decided::Before(Verdict::Withdrawn));
}

#[tokio::test]
async fn nobody_decides_in_time() {
    let desk = Arc::new(Desk::default());
    let patience = Duration::from_millis(20);
    let call = held(&desk, "a", patience).await;
    assert_eq!(call.await.unwrap(), Err(Refused::TimedOut(HoldNumber(1), patience)));
    assert_eq!(desk.decide(HoldNumber(1), Verdict::Approved, None), Decided::Before(Verdict::TimedOut));
}

/// G19: a close denies what is held, and what comes later is not held.
#[tokio::test]
async fn g19_a_close_denies_what_is_held() {
    let desk = Arc::new(Desk::default());
    let call = held(&desk, "a", LONG).await;
    desk.close();
    assert_eq!(call.await.unwrap(), Err(Refused::Closing));
    let server = server();
    let late = ToHold { server: &server, there: &|| true, tool: "b", arguments: None, patience: LONG };
    assert_eq!(desk.approval(late).await, Err(Refused::Closing));
}

/// Decisions race each other, the time and the caller's end: exactly one counts, and the caller hears that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_race() {
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..300u64 {
        let desk = Arc::new(Desk::default());
        let call = held(&desk, "a", Duration::from_micros(200 + round * 5)).await;
        let deciders: Vec<_> = [Verdict::Approved, Verdict::Denied]
            .into_iter()
            .map(|verdict| {
                let desk = Arc::clone(&desk);
                tokio::spawn(async move { (verdict, desk.decide(HoldNumber(1), verdict, None)) })
            })
            .collect();
        let mut first = None;
        for decider in deciders {
            let (verdict, decided) = decider.await.unwrap();
            if decided == Decided::Now {
                assert!(first.replace(verdict).is_none(), "two decisions counted");
            }
        }
        let heard = match call.await.unwrap() {
            Ok(()) => Verdict::Approved,
            Err(Refused::Denied(..)) => Verdict::Denied,
            Err(Refused::TimedOut(..)) => Verdict::TimedOut,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(heard, first.unwrap_or(Verdict::TimedOut));
        seen.insert(heard);
    }
    assert!(seen.len() >= 2, "the race told no outcomes apart: {seen:?}");
}
