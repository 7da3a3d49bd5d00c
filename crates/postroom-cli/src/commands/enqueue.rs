//! `postroom enqueue`: one message by hand.

use super::outbox;
use crate::args::Enqueue;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use postroom_core::{Enqueued, Limits, NewMessage};
use serde_json::json;

pub(super) async fn run(args: &Enqueue, origin: &Origin<'_>) -> Result<(), Failure> {
    let message = message(args);
    message.validate(&Limits::default()).map_err(|error| Failure::Usage(error.to_string()))?;
    let database = origin.database()?;
    outbox::migrate_embedded(&database).await?;
    let enqueued = outbox::open(&database).await?.enqueue(&message).await?;
    if args.json {
        return Ok(output::print_json(&json!({
            "id": enqueued.id(),
            "new": enqueued.is_new(),
            "event_id": message.event_id,
        }))?);
    }
    let text = match enqueued {
        Enqueued::New(id) => format!("enqueued {id}\n"),
        Enqueued::Duplicate(id) => format!(
            "this event was already enqueued for {} as {id}; nothing was changed\n",
            message.integration
        ),
    };
    Ok(output::print(&text)?)
}

fn message(args: &Enqueue) -> NewMessage {
    let mut message =
        NewMessage::new(&args.to, &args.event_type).raw(args.payload.clone().into_bytes());
    if let Some(headers) = &args.headers {
        message = message.raw_headers(headers.clone().into_bytes());
    }
    if let Some(id) = &args.event_id {
        message = message.event_id(id);
    }
    if let Some(attempts) = args.max_attempts {
        message = message.max_attempts(attempts);
    }
    message.stream_id.clone_from(&args.stream);
    message.ordering_key.clone_from(&args.key);
    message.tenant_id.clone_from(&args.tenant);
    message.user_id.clone_from(&args.user);
    message.correlation_id.clone_from(&args.correlation);
    message.due_at = args.due_at;
    message
}
