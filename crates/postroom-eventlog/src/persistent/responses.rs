//! Messages as clients read them.

use super::subscriber::Delivery;
use crate::event::RecordedEvent;
use crate::proto::persistent_subscriptions::ReadResp;
use crate::proto::persistent_subscriptions::read_resp::read_event::{Count, Position};
use crate::proto::persistent_subscriptions::read_resp::{
    Content, ReadEvent, SubscriptionConfirmation,
};
use crate::proto::shared::uuid::Value;
use crate::proto::shared::{Empty, RecordedEvent as WireEvent, Uuid as WireUuid};
use crate::server::encode::IdForm;
use crate::server::wire;
use std::collections::BTreeMap;

/// That a consumer has joined.
pub(super) fn confirmation(subscription_id: String) -> ReadResp {
    let confirmation = SubscriptionConfirmation { subscription_id };
    ReadResp { content: Some(Content::SubscriptionConfirmation(confirmation)) }
}

/// A message.
pub(super) fn message(delivery: &Delivery, form: IdForm) -> ReadResp {
    let Delivery { event, retries, _hold: _ } = delivery;
    let position = event.original().map_or(Position::NoPosition(Empty {}), |original| {
        Position::CommitPosition(original.position())
    });
    let retries = i32::try_from(*retries).unwrap_or(i32::MAX);
    let event = ReadEvent {
        event: event.event.as_ref().map(|event| wire_event(event, form)),
        link: event.link.as_ref().map(|link| wire_event(link, form)),
        position: Some(position),
        count: Some(Count::RetryCount(retries)),
    };
    ReadResp { content: Some(Content::Event(event)) }
}

fn wire_event(event: &RecordedEvent, form: IdForm) -> WireEvent {
    let id = match form {
        IdForm::Structured => wire::structured(event.id()),
        IdForm::Text => WireUuid { value: Some(Value::String(event.id().to_string())) },
    };
    let content_type = if event.is_json() { wire::JSON } else { wire::BINARY };
    let metadata = BTreeMap::from([
        ("type".to_owned(), event.event_type().to_owned()),
        ("content-type".to_owned(), content_type.to_owned()),
        ("created".to_owned(), event.created_ticks().to_string()),
    ]);
    WireEvent {
        id: Some(id),
        stream_identifier: Some(wire::identifier(event.stream())),
        stream_revision: event.revision(),
        prepare_position: event.position(),
        commit_position: event.position(),
        metadata,
        custom_metadata: event.metadata(),
        data: event.data(),
    }
}
