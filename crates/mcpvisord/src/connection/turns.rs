//! The order in which one connection's changes and closes reach a session: that in which they were sent, though each is handled by a
//! task of its own.
use mcpvisor_control::Method;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use tokio::sync::oneshot;

/// Those of one connection.
#[derive(Default)]
pub(super) struct Turns(Mutex<Option<oneshot::Receiver<()>>>);

/// A request's place in the order. It is kept until the request was handed over; dropping it lets the next one go.
pub(crate) struct Turn {
    before: Option<oneshot::Receiver<()>>,
    over: Option<oneshot::Sender<()>>,
}

/// What a request's handler takes its turn from.
pub(crate) type Place = Arc<Mutex<Option<Turn>>>;

impl Turns {
    /// To be asked as the requests are read; those for which the order means nothing have no turn.
    pub(super) fn place(&self, method: &str) -> Place {
        let ordered = matches!(
            Method::from_name(method),
            Some(
                Method::ServerAdd
                    | Method::ServerRemove
                    | Method::ServerRestart
                    | Method::SessionClose
                    | Method::SessionKill
            )
        );
        Place::new(Mutex::new(ordered.then(|| {
            let (over, next) = oneshot::channel();
            let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(next);
            Turn { before, over: Some(over) }
        })))
    }
}

/// Resolves when all before have been handed over. Cancel safe.
pub(super) async fn take(place: &Place) -> Option<Turn> {
    let mut turn = place.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    if let Some(before) = &mut turn.before {
        // Only the end of the other side is told.
        let _ = before.await;
    }
    turn.before = None;
    Some(turn)
}

impl Turn {
    /// Of what is handed over when it is first polled.
    pub(crate) async fn in_turn<T>(turn: Option<Self>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        drop(turn);
        match first {
            Poll::Ready(done) => done,
            Poll::Pending => work.await,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // One that is given up while it waits lets nobody go ahead of those that it waits for.
        if let (Some(before), Some(over)) = (self.before.take(), self.over.take()) {
            tokio::spawn(async move {
                let _ = before.await;
                drop(over);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    fn is_due(turn: &mut (impl Future<Output = Option<Turn>> + Unpin)) -> impl Future<Output = bool> {
        poll_fn(move |context| Poll::Ready(std::pin::Pin::new(&mut *turn).poll(context).is_ready()))
    }

    #[tokio::test]
    async fn requests_go_in_the_order_in_which_they_were_read() {
        let turns = Turns::default();
        let [first, second, third] =
            ["server/add", "server/remove", "session/close"].map(|of| turns.place(of));
        let mut last = Box::pin(take(&third));
        assert!(!is_due(&mut last).await);
        let mut given_up = Box::pin(take(&second));
        assert!(!is_due(&mut given_up).await);
        drop(given_up);
        tokio::task::yield_now().await;
        assert!(!is_due(&mut last).await, "the first is still there");
        assert_eq!(Turn::in_turn(take(&first).await, ready(1)).await, 1);
        assert!(last.await.is_some());
        assert!(take(&turns.place("tool/call")).await.is_none());
        let dropped = turns.place("server/add");
        drop(dropped);
        assert!(take(&turns.place("server/restart")).await.is_some());
    }
}
