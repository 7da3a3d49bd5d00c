//! Subscriptions: reads that go on.

use super::encode::EventEncoder;
use super::read::{PAGE, Page, Responses, encode, flatten, response};
use super::request::{ReadRequest, Source};
use super::{status, wire};
use crate::proto::streams::read_resp::{Checkpoint, Content, Standing, SubscriptionConfirmation};
use crate::{EventLog, Notice, ResolvedEvent, Subscription};
use uuid::Uuid;

/// Answers a subscription: with its id first, and then with what comes. It never ends well: the
/// client for Rust spins on a subscription that does.
pub(crate) fn subscribe(log: &EventLog, request: ReadRequest) -> Responses {
    let (subscription, stream) = match request.source {
        Source::Stream(stream, place) => {
            let subscription =
                log.subscribe_to_stream(&stream, place.start(), request.resolve_links);
            (subscription, Some(stream))
        }
        Source::All(place, filter) => {
            (log.subscribe_to_all(place.start(), filter, request.resolve_links), None)
        }
    };
    let following = Following {
        subscription,
        stream,
        encoder: EventEncoder::new(request.ids),
        is_confirmed: false,
    };
    flatten(Some(following), |following| async { Some(following?.next_page().await) })
}

struct Following {
    subscription: Subscription,
    /// The stream that is followed; none for the whole log.
    stream: Option<String>,
    encoder: EventEncoder,
    is_confirmed: bool,
}

impl Following {
    /// The next messages, and the subscription unless it has ended.
    async fn next_page(mut self) -> (Page, Option<Self>) {
        if !self.is_confirmed {
            self.is_confirmed = true;
            let subscription_id = Uuid::new_v4().to_string();
            let confirmation = SubscriptionConfirmation { subscription_id };
            return (vec![Ok(response(Content::Confirmation(confirmation)))], Some(self));
        }
        match self.subscription.next_batch(PAGE).await {
            Ok(notices) => (self.page(notices), Some(self)),
            Err(error) => {
                let stream = self.stream.as_deref().unwrap_or("$all");
                (vec![Err(status::of_subscription(stream, &error))], None)
            }
        }
    }

    fn page(&mut self, notices: Vec<Notice>) -> Page {
        let mut page = Page::with_capacity(notices.len());
        let mut events: Vec<ResolvedEvent> = Vec::with_capacity(notices.len());
        for notice in notices {
            let content = match notice {
                Notice::Event(event) => {
                    events.push(event);
                    continue;
                }
                Notice::Checkpoint(position) => Content::Checkpoint(Checkpoint {
                    commit_position: position,
                    prepare_position: position,
                    timestamp: Some(wire::now()),
                }),
                Notice::CaughtUp(place) => Content::CaughtUp(self.standing(place)),
                Notice::FellBehind(place) => Content::FellBehind(self.standing(place)),
            };
            encode(&mut self.encoder, &events, &mut page);
            events.clear();
            page.push(Ok(response(content)));
        }
        encode(&mut self.encoder, &events, &mut page);
        page
    }

    fn standing(&self, place: Option<u64>) -> Standing {
        let timestamp = Some(wire::now());
        if self.stream.is_some() {
            let stream_revision = place.and_then(|revision| i64::try_from(revision).ok());
            Standing { timestamp, stream_revision, position: None }
        } else {
            Standing { timestamp, stream_revision: None, position: place.map(wire::position) }
        }
    }
}
