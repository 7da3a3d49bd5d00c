//! `postroom enqueue`: one message by hand.

use super::outbox;
use crate::args::Enqueue;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use postroom_core::{Enqueued, Limits, NewMessage};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read};

pub(super) async fn run(args: &Enqueue, origin: &Origin<'_>) -> Result<(), Failure> {
    let message = message(args)?;
    message.validate(&Limits::default()).map_err(|error| Failure::Usage(error.to_string()))?;
    let database = outbox::named(origin, args.json)?;
    let enqueued = outbox::open(&database).await?.enqueue(&message).await?;
    warn_of_unknown(&message.integration, origin);
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

/// Says so where no relay with the configuration at hand would deliver it.
fn warn_of_unknown(integration: &str, origin: &Origin<'_>) {
    let Some(known) = origin.known_integrations().filter(|known| !known.contains(integration))
    else {
        return;
    };
    let place = match &known.file {
        Some(file) => format!("{} does not have it", file.display()),
        None => "there is no configuration here".to_owned(),
    };
    tracing::warn!(
        "no integration {integration} is known: {place}; the message waits until a relay has \
         [integrations.\"{integration}\"]"
    );
}

/// The body: the argument itself, a file's content, or what comes from standard input.
fn payload(argument: &str) -> Result<Vec<u8>, Failure> {
    let (from, read) = match argument.strip_prefix('@') {
        None if argument == "-" => ("standard input", read(io::stdin().lock())),
        None => return Ok(argument.as_bytes().to_vec()),
        Some(file) => (file, File::open(file).and_then(read)),
    };
    read.map_err(|error| Failure::Usage(format!("--payload: cannot read {from}: {error}")))
}

/// Reads no more than what tells that it is too much.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(Limits::default().payload_bytes as u64 + 1).read_to_end(&mut bytes)?;
    // Nobody means the line break that an editor puts at the end.
    bytes.truncate(bytes.trim_ascii_end().len());
    Ok(bytes)
}

fn message(args: &Enqueue) -> Result<NewMessage, Failure> {
    let payload = payload(&args.payload)?;
    let mut message = NewMessage::new(&args.to, &args.event_type).raw(payload);
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
    Ok(message)
}
