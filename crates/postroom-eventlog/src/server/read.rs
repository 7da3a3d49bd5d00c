//! Reads that end.

use super::encode::EventEncoder;
use super::request::{Place, ReadRequest, Source};
use super::{status, wire};
use crate::proto::streams::ReadResp;
use crate::proto::streams::read_resp::{Content, ReadEvent, StreamNotFound, read_event};
use crate::{Direction, EventLog, Filter, ResolvedEvent, StreamState};
use futures_util::{Stream, StreamExt as _, stream};
use std::pin::Pin;
use tonic::Status;

/// The answer to a read.
pub(crate) type Responses = Pin<Box<dyn Stream<Item = Result<ReadResp, Status>> + Send>>;
/// Some of its messages.
pub(crate) type Page = Vec<Result<ReadResp, Status>>;

/// How many events to ask the log for at once. It gives fewer where they are large: whoever does not
/// read holds such a page in memory, as it is on the wire.
pub(crate) const PAGE: usize = 1_024;
/// The same for a read with a filter, which looks at events more than it gives any.
const FILTERED_PAGE: usize = 4_096;

/// A message of an answer.
pub(crate) fn response(content: Content) -> ReadResp {
    ReadResp { content: Some(content) }
}

/// The messages of pages, one after another.
pub(crate) fn flatten<S, F>(state: S, next_page: impl FnMut(S) -> F + Send + 'static) -> Responses
where
    S: Send + 'static,
    F: Future<Output = Option<(Page, S)>> + Send + 'static,
{
    Box::pin(stream::unfold(state, next_page).flat_map(stream::iter))
}

/// Turns events into messages.
pub(crate) fn encode(encoder: &mut EventEncoder, events: &[ResolvedEvent], page: &mut Page) {
    let both = |resolved: &ResolvedEvent| {
        [resolved.event.as_ref(), resolved.link.as_ref()]
            .into_iter()
            .flatten()
            .map(EventEncoder::size)
            .sum::<usize>()
    };
    encoder.reserve(events.iter().map(both).sum());
    page.extend(events.iter().map(|resolved| Ok(response(event(encoder, resolved)))));
}

/// The message for one event.
fn event(encoder: &mut EventEncoder, resolved: &ResolvedEvent) -> Content {
    let position = match resolved.original() {
        Some(original) => read_event::Position::CommitPosition(original.position()),
        None => read_event::Position::NoPosition(crate::proto::shared::Empty {}),
    };
    let mut encoded = |event: Option<&_>| event.map(|event| encoder.encode(event));
    Content::Event(ReadEvent {
        event: encoded(resolved.event.as_ref()).unwrap_or_default(),
        link: encoded(resolved.link.as_ref()).unwrap_or_default(),
        position: Some(position),
    })
}

/// Answers a read of a number of events.
///
/// # Errors
/// When its first page cannot be read: a client then knows at once, before any message.
pub(crate) async fn read(
    log: EventLog,
    request: ReadRequest,
    direction: Direction,
    count: u64,
) -> Result<Responses, Status> {
    let encoder = EventEncoder::new(request.ids);
    let reading = Reading {
        log,
        encoder,
        direction,
        left: count,
        resolve_links: request.resolve_links,
        tells_ends: request.tells_ends,
    };
    match request.source {
        Source::Stream(stream, place) => {
            let read = StreamRead { reading, stream, from: place, is_first: true };
            let (first, read) = read.next_page().await;
            let rest = flatten(read, |read| async { Some(read?.next_page().await) });
            begin(first, rest)
        }
        Source::All(place, filter) => {
            let from = match place {
                Place::Start => 0,
                Place::End => u64::MAX,
                Place::At(position) => position,
            };
            let filter = filter.map(|(filter, _)| filter);
            let read = AllRead { reading, from, filter, last: None };
            let (first, read) = read.next_page().await;
            let rest = flatten(read, |read| async { Some(read?.next_page().await) });
            begin(first, rest)
        }
    }
}

/// What is read page by page.
trait Paged: Send + Sized {
    /// Adds the next messages; says whether there are more.
    fn fill(&mut self, page: &mut Page) -> impl Future<Output = Result<bool, Status>> + Send;

    /// The next messages, and the read unless it has ended.
    fn next_page(mut self) -> impl Future<Output = (Page, Option<Self>)> + Send {
        async move {
            let mut page = Page::new();
            match self.fill(&mut page).await {
                Ok(true) => (page, Some(self)),
                Ok(false) => (page, None),
                Err(status) => {
                    page.push(Err(status));
                    (page, None)
                }
            }
        }
    }
}

fn begin(first: Page, rest: Responses) -> Result<Responses, Status> {
    match first.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(first) => Ok(Box::pin(stream::iter(first).map(Ok).chain(rest))),
        Err(status) => Err(status),
    }
}

/// What both kinds of reads have.
struct Reading {
    log: EventLog,
    encoder: EventEncoder,
    direction: Direction,
    /// How many events the client still wants.
    left: u64,
    resolve_links: bool,
    tells_ends: bool,
}

impl Reading {
    /// How many events to ask for next.
    fn limit(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX).min(PAGE)
    }

    /// Adds events to a page.
    fn take(&mut self, events: &[ResolvedEvent], page: &mut Page) {
        let taken = events.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        encode(&mut self.encoder, &events[..taken], page);
        self.left -= taken as u64;
    }
}

/// A read of a stream.
struct StreamRead {
    reading: Reading,
    stream: String,
    from: Place,
    is_first: bool,
}

impl Paged for StreamRead {
    async fn fill(&mut self, page: &mut Page) -> Result<bool, Status> {
        let reading = &mut self.reading;
        let from = match (self.from, reading.direction) {
            (Place::At(revision), _) => Some(revision),
            (Place::Start, _) => Some(0),
            (Place::End, Direction::Backwards) => Some(u64::MAX),
            // Nothing comes after the end; only whether the stream is there is to be told.
            (Place::End, Direction::Forwards) => None,
        };
        let of_error = |error| status::of_read(&self.stream, &error);
        let (events, next, state) = match from {
            Some(from) if reading.left > 0 => {
                let read = reading
                    .log
                    .read_stream(
                        &self.stream,
                        from,
                        reading.direction,
                        reading.limit(),
                        reading.resolve_links,
                    )
                    .await
                    .map_err(of_error)?;
                (read.events, read.next, read.state)
            }
            Some(_) | None => {
                let state = reading.log.stream_state(&self.stream).await.map_err(of_error)?;
                (Vec::new(), None, state)
            }
        };
        let (first, last) = match state {
            StreamState::There { first, last } => (first, last),
            StreamState::Tombstoned => return Err(status::stream_deleted(&self.stream)),
            StreamState::Missing if self.is_first => {
                let stream_identifier = Some(wire::identifier(&self.stream));
                let missing = Content::StreamNotFound(StreamNotFound { stream_identifier });
                page.push(Ok(response(missing)));
                return Ok(false);
            }
            // It was deleted while it was read.
            StreamState::Missing => return Ok(false),
        };
        let begins_later =
            reading.direction == Direction::Forwards && from.is_some_and(|from| from < first);
        if self.is_first && reading.tells_ends && begins_later {
            page.push(Ok(response(Content::FirstStreamPosition(first))));
        }
        reading.take(&events, page);
        self.is_first = false;
        match next {
            Some(next) if reading.left > 0 => {
                self.from = Place::At(next);
                Ok(true)
            }
            Some(_) => Ok(false),
            None => {
                if reading.tells_ends {
                    page.push(Ok(response(Content::LastStreamPosition(last))));
                }
                Ok(false)
            }
        }
    }
}

/// A read of the whole log.
struct AllRead {
    reading: Reading,
    from: u64,
    filter: Option<Filter>,
    /// The position of the last event that was looked at.
    last: Option<u64>,
}

impl Paged for AllRead {
    async fn fill(&mut self, page: &mut Page) -> Result<bool, Status> {
        let reading = &mut self.reading;
        if reading.left == 0 {
            return Ok(false);
        }
        let limit = if self.filter.is_some() { FILTERED_PAGE } else { reading.limit() };
        let read = reading
            .log
            .read_all(
                self.from,
                reading.direction,
                limit,
                self.filter.as_ref(),
                reading.resolve_links,
            )
            .await
            .map_err(|error| status::of_read("$all", &error))?;
        reading.take(&read.events, page);
        self.from = read.next;
        self.last = read.last.or(self.last);
        if read.is_end {
            if let Some(last) = self.last.filter(|_| reading.tells_ends) {
                page.push(Ok(response(Content::LastAllStreamPosition(wire::position(last)))));
            }
            return Ok(false);
        }
        Ok(reading.left > 0)
    }
}
