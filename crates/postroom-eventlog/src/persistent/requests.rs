//! What clients ask for, checked.

use super::error::Error;
use super::group_id::GroupId;
use super::registry::Wanted;
use super::settings::{COUNT_MAX, GroupSettings, Strategy};
use super::source::{ALL, FilterSpec, StartFrom};
use crate::proto::persistent_subscriptions::all_options::{AllOption, FilterOption};
use crate::proto::persistent_subscriptions::create_req::options::StreamOption;
use crate::proto::persistent_subscriptions::settings::{CheckpointAfter, MessageTimeout};
use crate::proto::persistent_subscriptions::{
    AllOptions, CreateReq, NamedStrategy, Settings, create_req,
};
use crate::proto::shared::filter_options::Filter;
use crate::proto::shared::stream_options::RevisionOption;
use crate::proto::shared::{FilterOptions, StreamIdentifier, StreamOptions};

const MESSAGE_TIMEOUT_MS: u32 = 30_000;
const CHECKPOINT_AFTER_MS: u32 = 2_000;
const TICKS_PER_MS: i64 = 10_000;
/// The revision and position that mean the end.
const END: u64 = u64::MAX;

/// The name of a stream.
pub(super) fn stream(identifier: Option<StreamIdentifier>) -> Result<String, Error> {
    let name = identifier.map(|identifier| identifier.stream_name).unwrap_or_default();
    String::from_utf8(name.into()).map_err(|_| invalid("the name of the stream is not UTF-8"))
}

/// The group of a stream, or of the whole log where there is none.
pub(super) fn group_id(
    identifier: Option<StreamIdentifier>,
    group: String,
) -> Result<GroupId, Error> {
    let stream = match identifier {
        Some(identifier) => stream(Some(identifier))?,
        None => ALL.to_owned(),
    };
    GroupId::new(stream, group).map_err(Error::Invalid)
}

/// What a client wants of a group that it makes or changes.
pub(super) fn wanted(request: CreateReq) -> Result<Wanted, Error> {
    let options = request.options.ok_or_else(|| invalid("the request has no options"))?;
    let create_req::Options { stream_identifier, group_name, settings, stream_option } = options;
    let settings = settings.ok_or_else(|| invalid("the request has no settings"))?;
    let (stream, filter, start) = match stream_option {
        Some(StreamOption::Stream(options)) => {
            let start = stream_start(&options);
            (stream(options.stream_identifier)?, None, start)
        }
        Some(StreamOption::All(options)) => {
            let start = all_start(&options);
            (ALL.to_owned(), filter(options)?, start)
        }
        // As clients said it before a group could be of the whole log.
        None => (stream(stream_identifier)?, None, start_at(settings.revision)),
    };
    let id = GroupId::new(stream, group_name).map_err(Error::Invalid)?;
    let settings = group_settings(&settings)?;
    Ok(Wanted { id, filter, start, settings })
}

fn stream_start(options: &StreamOptions) -> StartFrom {
    match options.revision_option {
        Some(RevisionOption::Revision(revision)) => start_at(revision),
        Some(RevisionOption::Start(_)) | None => StartFrom::Beginning,
        Some(RevisionOption::End(_)) => StartFrom::End,
    }
}

fn all_start(options: &AllOptions) -> StartFrom {
    match &options.all_option {
        Some(AllOption::Position(position)) => start_at(position.commit_position),
        Some(AllOption::Start(_)) | None => StartFrom::Beginning,
        Some(AllOption::End(_)) => StartFrom::End,
    }
}

fn start_at(place: u64) -> StartFrom {
    match place {
        0 => StartFrom::Beginning,
        END => StartFrom::End,
        place => StartFrom::At(place),
    }
}

fn filter(options: AllOptions) -> Result<Option<FilterSpec>, Error> {
    let Some(FilterOption::Filter(FilterOptions { filter, .. })) = options.filter_option else {
        return Ok(None);
    };
    let (by_stream, expression) = match filter {
        Some(Filter::StreamIdentifier(expression)) => (true, expression),
        Some(Filter::EventType(expression)) => (false, expression),
        None => return Err(invalid("a filter looks at streams or at types: it says neither")),
    };
    let spec = FilterSpec { by_stream, pattern: expression.regex, prefixes: expression.prefix };
    spec.filter().map_err(Error::Invalid)?;
    Ok(Some(spec))
}

fn group_settings(settings: &Settings) -> Result<GroupSettings, Error> {
    let message_timeout_ms = match settings.message_timeout {
        Some(MessageTimeout::MessageTimeoutMs(ms)) => count("message_timeout", ms.into())?,
        Some(MessageTimeout::MessageTimeoutTicks(ticks)) => {
            count("message_timeout", ticks / TICKS_PER_MS)?
        }
        None => MESSAGE_TIMEOUT_MS,
    };
    let checkpoint_after_ms = match settings.checkpoint_after {
        Some(CheckpointAfter::CheckpointAfterMs(ms)) => count("checkpoint_after", ms.into())?,
        Some(CheckpointAfter::CheckpointAfterTicks(ticks)) => {
            count("checkpoint_after", ticks / TICKS_PER_MS)?
        }
        None => CHECKPOINT_AFTER_MS,
    };
    let checked = GroupSettings {
        resolve_links: settings.resolve_links,
        extra_statistics: settings.extra_statistics,
        message_timeout_ms,
        max_retry_count: count("max_retry_count", settings.max_retry_count.into())?,
        checkpoint_after_ms,
        min_checkpoint_count: count("min_checkpoint_count", settings.min_checkpoint_count.into())?,
        max_checkpoint_count: count("max_checkpoint_count", settings.max_checkpoint_count.into())?,
        max_subscriber_count: count("max_subscriber_count", settings.max_subscriber_count.into())?,
        live_buffer_size: count("live_buffer_size", settings.live_buffer_size.into())?,
        read_batch_size: count("read_batch_size", settings.read_batch_size.into())?,
        history_buffer_size: count("history_buffer_size", settings.history_buffer_size.into())?,
        strategy: strategy(settings)?,
    };
    checked.check().map_err(Error::Invalid)?;
    Ok(checked)
}

fn strategy(settings: &Settings) -> Result<Strategy, Error> {
    let name = &settings.consumer_strategy;
    if !name.is_empty() {
        return Strategy::named(name).ok_or_else(|| {
            invalid("consumer_strategy is none of DispatchToSingle, RoundRobin, Pinned, PinnedByCorrelation")
        });
    }
    match NamedStrategy::try_from(settings.named_consumer_strategy) {
        Ok(NamedStrategy::DispatchToSingle) => Ok(Strategy::DispatchToSingle),
        Ok(NamedStrategy::RoundRobin) => Ok(Strategy::RoundRobin),
        Ok(NamedStrategy::Pinned) => Ok(Strategy::Pinned),
        Err(_) => Err(invalid("named_consumer_strategy is unknown")),
    }
}

fn count(name: &str, value: i64) -> Result<u32, Error> {
    let count = u32::try_from(value).ok().filter(|count| *count <= COUNT_MAX);
    count.ok_or_else(|| {
        Error::Invalid(format!("{name} must be between 0 and {COUNT_MAX}, not {value}"))
    })
}

fn invalid(text: &str) -> Error {
    Error::Invalid(text.to_owned())
}
