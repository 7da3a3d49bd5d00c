//! What a client asks to read.

use super::encode::IdForm;
use super::wire;
use crate::proto::shared::{FilterOptions, filter_options, stream_options};
use crate::proto::streams::read_req::{
    AllOptions, Direction as WireDirection, Options, all_options, options,
};
use crate::{Direction, Filter, FilterOn, Start};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tonic::Status;

/// The events that a filter may pass over before a checkpoint, where a client names no number.
const WINDOW: u32 = 32;
/// The most prefixes of one filter, and their bytes.
const PREFIXES_MAX: usize = 1_000;
const PREFIX_BYTES_MAX: usize = 16 << 10;

/// A request to read, of which every part is known to make sense.
#[derive(Debug)]
pub(crate) struct ReadRequest {
    pub(crate) source: Source,
    pub(crate) mode: Mode,
    pub(crate) resolve_links: bool,
    pub(crate) ids: IdForm,
    /// Whether the client understands messages about where a stream begins and ends.
    pub(crate) tells_ends: bool,
}

/// What to read.
#[derive(Debug)]
pub(crate) enum Source {
    /// A stream, from a place in it.
    Stream(String, Place),
    /// The whole log, from a place in it. With a filter and the number of events after which it
    /// has a checkpoint.
    All(Place, Option<(Filter, u64)>),
}

/// How to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// A number of events.
    Once { direction: Direction, count: u64 },
    /// All that come.
    Subscription,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Start,
    End,
    /// A revision, or a position.
    At(u64),
}

impl Place {
    /// Where a subscription begins: after what the client has seen.
    pub(crate) fn start(self) -> Start {
        match self {
            Self::Start => Start::Beginning,
            // The largest number is how some clients name the end.
            Self::End | Self::At(u64::MAX) => Start::End,
            Self::At(seen) => Start::After(seen),
        }
    }
}

impl ReadRequest {
    pub(crate) fn parse(options: Option<Options>) -> Result<Self, Status> {
        let options = options.ok_or_else(|| missing("options"))?;
        let direction = match WireDirection::try_from(options.read_direction) {
            Ok(WireDirection::Forwards) => Direction::Forwards,
            Ok(WireDirection::Backwards) => Direction::Backwards,
            Err(_) => return Err(Status::invalid_argument("an unknown direction to read in")),
        };
        let mode = match options.count_option.ok_or_else(|| missing("count_option"))? {
            options::CountOption::Count(count) => Mode::Once { direction, count },
            options::CountOption::Subscription(_) if direction == Direction::Forwards => {
                Mode::Subscription
            }
            options::CountOption::Subscription(_) => {
                return Err(Status::invalid_argument("a subscription cannot go backwards"));
            }
        };
        let filter = match options.filter_option {
            Some(options::FilterOption::Filter(filter)) => Some(filter),
            Some(options::FilterOption::NoFilter(_)) | None => None,
        };
        let source = match options.stream_option.ok_or_else(|| missing("stream_option"))? {
            options::StreamOption::Stream(_) if filter.is_some() => {
                return Err(Status::invalid_argument("only $all can be filtered"));
            }
            options::StreamOption::Stream(stream) => {
                let name = wire::stream_name(stream.stream_identifier)?;
                Source::Stream(name, revision(stream.revision_option)?)
            }
            options::StreamOption::All(all) => {
                let filter = filter.map(|wire| parse_filter(wire, mode)).transpose()?;
                Source::All(position(&all)?, filter)
            }
        };
        Ok(Self {
            source,
            mode,
            resolve_links: options.resolve_links,
            ids: IdForm::of(options.uuid_option.as_ref()),
            tells_ends: options.control_option.is_some_and(|control| control.compatibility > 0),
        })
    }
}

fn missing(name: &str) -> Status {
    Status::invalid_argument(format!("{name} is missing"))
}

fn revision(option: Option<stream_options::RevisionOption>) -> Result<Place, Status> {
    match option.ok_or_else(|| missing("revision_option"))? {
        stream_options::RevisionOption::Revision(revision) => Ok(Place::At(revision)),
        stream_options::RevisionOption::Start(_) => Ok(Place::Start),
        stream_options::RevisionOption::End(_) => Ok(Place::End),
    }
}

fn position(all: &AllOptions) -> Result<Place, Status> {
    match all.all_option.as_ref().ok_or_else(|| missing("all_option"))? {
        all_options::AllOption::Position(position) => Ok(Place::At(position.commit_position)),
        all_options::AllOption::Start(_) => Ok(Place::Start),
        all_options::AllOption::End(_) => Ok(Place::End),
    }
}

/// A filter, and after how many events it has a checkpoint.
fn parse_filter(wire: FilterOptions, mode: Mode) -> Result<(Filter, u64), Status> {
    let (on, expression) = match wire.filter.ok_or_else(|| missing("filter"))? {
        filter_options::Filter::StreamIdentifier(expression) => (FilterOn::Stream, expression),
        filter_options::Filter::EventType(expression) => (FilterOn::EventType, expression),
    };
    let window = match wire.window {
        Some(filter_options::Window::Max(window)) => window,
        Some(filter_options::Window::Count(_)) | None => WINDOW,
    };
    let interval = u64::from(window) * u64::from(wire.checkpoint_interval_multiplier);
    if mode == Mode::Subscription && interval == 0 {
        let text = "the window of a filter and its checkpoint interval must not be zero";
        return Err(Status::invalid_argument(text));
    }
    let bytes = expression.prefix.iter().map(String::len).sum::<usize>();
    if expression.prefix.len() > PREFIXES_MAX || bytes > PREFIX_BYTES_MAX {
        let text =
            format!("a filter has at most {PREFIXES_MAX} prefixes of {PREFIX_BYTES_MAX} bytes");
        return Err(Status::invalid_argument(text));
    }
    let filter = if expression.regex.is_empty() {
        Filter::prefixes(on, expression.prefix)
    } else {
        compile(on, &expression.regex)?
    };
    Ok((filter, interval.max(1)))
}

/// Compiles a pattern, which can take 20 ms. Meanwhile other tasks leave this thread.
fn compile(on: FilterOn, pattern: &str) -> Result<Filter, Status> {
    let compile = || Filter::pattern(on, pattern).map_err(Status::invalid_argument);
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(compile),
        // A runtime of one thread has no other to go to.
        Ok(_) | Err(_) => compile(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::shared::{Empty, Position, StreamOptions};
    use crate::proto::streams::read_req::ControlOption;

    fn of_stream() -> Options {
        let stream = StreamOptions {
            stream_identifier: Some(wire::identifier("order-1")),
            revision_option: Some(stream_options::RevisionOption::Revision(5)),
        };
        Options {
            stream_option: Some(options::StreamOption::Stream(stream)),
            count_option: Some(options::CountOption::Count(10)),
            ..Default::default()
        }
    }

    fn of_all(filter: Option<FilterOptions>) -> Options {
        let position = Position { commit_position: 7, prepare_position: 7 };
        let all = AllOptions { all_option: Some(all_options::AllOption::Position(position)) };
        Options {
            stream_option: Some(options::StreamOption::All(all)),
            count_option: Some(options::CountOption::Subscription(Empty {})),
            filter_option: filter.map(options::FilterOption::Filter),
            ..Default::default()
        }
    }

    fn filter(regex: &str, multiplier: u32) -> FilterOptions {
        let expression = filter_options::Expression { regex: regex.to_owned(), prefix: Vec::new() };
        FilterOptions {
            filter: Some(filter_options::Filter::EventType(expression)),
            window: Some(filter_options::Window::Max(10)),
            checkpoint_interval_multiplier: multiplier,
        }
    }

    fn refusal(options: Options) -> String {
        let status = ReadRequest::parse(Some(options)).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        status.message().to_owned()
    }

    #[test]
    fn a_read_of_a_stream_is_understood() {
        let control_option = Some(ControlOption { compatibility: 1 });
        let request = ReadRequest::parse(Some(Options { control_option, ..of_stream() })).unwrap();
        assert!(matches!(request.source, Source::Stream(name, Place::At(5)) if name == "order-1"));
        assert_eq!(request.mode, Mode::Once { direction: Direction::Forwards, count: 10 });
        assert!(request.tells_ends);
    }

    #[test]
    fn a_filtered_subscription_has_a_checkpoint_after_window_times_multiplier_events() {
        let request = ReadRequest::parse(Some(of_all(Some(filter("^a", 3))))).unwrap();
        assert!(matches!(request.source, Source::All(Place::At(7), Some((_, 30)))));
        assert_eq!(request.mode, Mode::Subscription);
    }

    #[test]
    fn each_part_that_is_missing_is_named() {
        assert!(ReadRequest::parse(None).is_err());
        assert!(refusal(Options { stream_option: None, ..of_stream() }).contains("stream_option"));
        assert!(refusal(Options { count_option: None, ..of_stream() }).contains("count_option"));
        let no_filter = FilterOptions { filter: None, ..filter("", 1) };
        assert!(refusal(of_all(Some(no_filter))).contains("filter"));
    }

    #[test]
    fn combinations_that_make_no_sense_are_refused() {
        assert!(refusal(Options { read_direction: 1, ..of_all(None) }).contains("backwards"));
        assert!(refusal(Options { read_direction: 9, ..of_all(None) }).contains("direction"));
        let filter_option = Some(options::FilterOption::Filter(filter("a", 1)));
        assert!(refusal(Options { filter_option, ..of_stream() }).contains("$all"));
        assert!(refusal(of_all(Some(filter("a", 0)))).contains("zero"));
        for pattern in ["(".repeat(100_000), "a".repeat(100_000), "((a{99}){99}){99}".to_owned()] {
            assert!(refusal(of_all(Some(filter(&pattern, 1)))).contains("regular expression"));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_pattern_is_compiled_on_a_runtime_of_several_threads() {
        let parse = |pattern| ReadRequest::parse(Some(of_all(Some(filter(pattern, 1)))));
        tokio::spawn(async move { assert!(parse("^a").is_ok() && parse("(?=a)").is_err()) })
            .await
            .unwrap();
    }

    #[test]
    fn a_filter_of_too_many_or_too_long_prefixes_is_refused() {
        for prefix in
            [vec![String::new(); PREFIXES_MAX + 1], vec!["a".repeat(PREFIX_BYTES_MAX + 1)]]
        {
            let expression = filter_options::Expression { regex: String::new(), prefix };
            let by_type = Some(filter_options::Filter::EventType(expression));
            let wire = FilterOptions { filter: by_type, ..filter("", 1) };
            assert!(refusal(of_all(Some(wire))).contains("prefixes"));
        }
    }

    #[test]
    fn the_largest_number_is_the_end_for_a_subscription() {
        assert_eq!(Place::At(u64::MAX).start(), Start::End);
        assert_eq!(Place::At(3).start(), Start::After(3));
        assert_eq!(Place::Start.start(), Start::Beginning);
    }
}
