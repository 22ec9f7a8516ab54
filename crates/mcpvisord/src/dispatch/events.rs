//! What has happened.
use crate::connection::Context;
use crate::convert;
use crate::outbox::Outbox;
use mcpvisor_control::message::notification;
use mcpvisor_control::{ErrorObject, Id, method, params, results};
use mcpvisor_lifecycle::Generation;
use mcpvisor_supervisor::EventsWanted;

/// What follows is answered at once. The events then go out at the pace at which the client reads them: what it is too slow for is
/// told as lost (G39).
pub(super) async fn subscribe(
    context: Context,
    params: params::EventSubscribe,
) -> Result<results::Subscribed, ErrorObject> {
    let uid = context.daemon.rights().owner(&context.peer, params.user)?;
    let key = params.key.as_ref().map(convert::key_name);
    let wanted = EventsWanted {
        since: params.since,
        key: key.clone(),
        generation: params.generation.map(Generation),
        follow: params.follow,
    };
    let stream = context.daemon.supervisor.events(uid, wanted).await;
    let mut stream = stream.map_err(|failure| convert::error(failure, key.as_ref()))?;
    let (next, oldest) = stream.bounds();
    let instance = context.daemon.rights().instance.clone();
    let instance_told = instance.clone();
    let mut answer =
        results::Subscribed { instance: instance_told, next, oldest, events: Vec::new(), lost: 0 };
    if !params.follow {
        while let Some(told) = stream.next().await {
            answer.events.push(convert::event(&told, &instance));
        }
        answer.lost = stream.lost();
        return Ok(answer);
    }
    context.answer_now::<params::EventSubscribe>(&answer)?;
    let _over = Over { outbox: context.outbox.clone(), id: context.id.clone() };
    let mut ending = false;
    // Little is queued first: then an event is looked for in the ring, which may have gone round meanwhile.
    while context.outbox.low().await {
        let told = tokio::select! {
            biased;
            told = stream.next() => told,
            _ = context.daemon.ended(), if !ending => {
                // What has been published by then is told still.
                ending = true;
                stream.finish();
                continue;
            }
            () = context.outbox.ended() => break,
        };
        let Some(told) = told else { break };
        let event = convert::event(&told, &instance);
        let note = results::EventNotification { request_id: context.id.clone(), event };
        if let Ok(line) = notification(method::EVENT, &note) {
            context.outbox.push(line);
        }
    }
    Ok(answer)
}

/// Says that there will be no more, whyever.
struct Over {
    outbox: Outbox,
    id: Id,
}

impl Drop for Over {
    fn drop(&mut self) {
        let note = results::EventsEnded { request_id: self.id.clone() };
        if let Ok(line) = notification(method::EVENTS_ENDED, &note) {
            self.outbox.push(line);
        }
    }
}
