//! `[integrations."adapter:channel"]`: the lane's keys, and the rest for the sink.

use super::BATCH_SIZE_MAX;
use super::environment::Overrides;
use super::model::{Integration, Queued};
use super::queued::{QUEUE_KEYS, Transport, queued, transport};
use super::reader::Section;
use super::sections::{NO_INTEGRATION, Relay, is_integration, retry_keys};
use postroom_core::{AttemptLimit, RetryPolicy};
use postroom_sinks::{Destination, SinkKind};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::time::Duration;

/// The keys that every integration takes.
const LANE_KEYS: [&str; 6] =
    ["concurrency", "batch_size", "timeout", "retry", "transport", "record_sent"];
/// The keys of one whose messages go through BullMQ to workers of somebody else's.
const EXTERNAL_KEYS: [&str; 2] = ["retry", "transport"];

/// The longest attempt.
const TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

/// The integrations that are delivered directly, and those that go through BullMQ.
pub(super) fn read(
    root: &Section<'_>,
    relay: &Relay,
    overrides: &Overrides,
) -> (Vec<Integration>, Vec<Queued>) {
    let (mut direct, mut through_queues) = (Vec::new(), Vec::new());
    let Some(section) = root.section("integrations") else { return (direct, through_queues) };
    let mut queues = HashMap::new();
    for (name, section) in section.sections() {
        if !is_integration(&name) {
            section.fault(format!("the name in [integrations] {NO_INTEGRATION}"), None);
        }
        match transport(&section) {
            Transport::Direct => {
                direct.extend(integration(&name, &section, relay, overrides));
            }
            Transport::BullMq { is_external: true } => {
                // What it takes to deliver is the others' business.
                let known: Vec<&str> = EXTERNAL_KEYS.into_iter().chain(QUEUE_KEYS).collect();
                section.expect_only(&known);
                let retry = overridden(retry_keys(&section).over(relay.retry), overrides);
                through_queues.push(queued(&name, &section, retry, None));
                is_alone(&section, through_queues.last(), &mut queues);
            }
            Transport::BullMq { is_external: false } => {
                if let Some(own) = integration(&name, &section, relay, overrides) {
                    through_queues.push(queued(&name, &section, own.retry, Some(own)));
                    is_alone(&section, through_queues.last(), &mut queues);
                }
            }
        }
    }
    (direct, through_queues)
}

/// Faults an integration whose queue is another's too: whose rate and concurrency would hold there?
fn is_alone(section: &Section<'_>, queued: Option<&Queued>, queues: &mut HashMap<String, String>) {
    let Some(queued) = queued.filter(|queued| !queued.queue.is_by_tenant()) else { return };
    let queue = queued.queue.name(&queued.name, None);
    if let Some(other) = queues.get(&queue) {
        let problem = format!("its queue {queue} is that of {other} too");
        section.fault(problem, Some("give one of them another name by `queue`".to_owned()));
    } else {
        queues.insert(queue, queued.name.clone());
    }
}

/// The names of what a relay without any configuration serves.
pub(super) const BUILT_IN: [&str; 2] = ["noop", "stdout"];

/// What a relay without any configuration serves.
pub(super) fn built_in(relay: &Relay, overrides: &Overrides) -> Vec<Integration> {
    BUILT_IN
        .into_iter()
        .filter_map(|name| {
            let kind = SinkKind::of(name).ok()?;
            let destination = Destination { integration: name, timeout: kind.timeout };
            let sink = kind.validate(Map::new(), &destination).ok()?;
            Some(Integration {
                name: name.to_owned(),
                sink,
                concurrency: kind.concurrency,
                batch_size: relay.settings.batch_size,
                timeout: kind.timeout,
                retry: overridden(relay.retry, overrides),
                is_recorded_later: false,
            })
        })
        .collect()
}

fn overridden(mut retry: RetryPolicy, overrides: &Overrides) -> RetryPolicy {
    if let Some(attempts) = overrides.max_attempts {
        retry.max_attempts = AttemptLimit::AtMost(attempts);
    }
    retry
}

fn integration(
    name: &str,
    section: &Section<'_>,
    relay: &Relay,
    overrides: &Overrides,
) -> Option<Integration> {
    let kind = match SinkKind::of(name) {
        Ok(kind) => kind,
        Err(error) => {
            section.fault(error.to_string(), Some(error.hint()));
            // Which of its keys are right cannot be told.
            return None;
        }
    };
    let known: Vec<&str> = LANE_KEYS.iter().chain(&QUEUE_KEYS).chain(kind.keys).copied().collect();
    section.expect_only(&known);

    let concurrency = section.integer("concurrency", 1..=1_024);
    let batch_size = section.integer("batch_size", 1..=BATCH_SIZE_MAX);
    let timeout = section.duration("timeout", Duration::from_millis(1)..=TIMEOUT_MAX);
    let timeout = overrides
        .webhook_timeout
        .filter(|_| kind.name == "webhook")
        .or(timeout)
        .unwrap_or(kind.timeout);
    let retry = overridden(retry_keys(section).over(relay.retry), overrides);
    let mut options: Map<String, Value> = section
        .keys()
        .filter(|key| kind.keys.contains(key))
        .filter_map(|key| Some((key.to_owned(), section.json(key)?)))
        .collect();
    // One variable stands for one cluster: integrations that name another keep it.
    let brokers = overrides.kafka_brokers.as_ref().filter(|_| kind.name == "kafka");
    if let Some(brokers) = brokers.filter(|_| !section.keys().any(|key| key == "brokers")) {
        options.insert("brokers".to_owned(), brokers.as_str().into());
    }
    let sink = match kind.validate(options, &Destination { integration: name, timeout }) {
        Ok(sink) => sink,
        Err(faults) => {
            for fault in faults {
                // A value that could not be read has been reported at its own place.
                let unread =
                    fault.problem.starts_with("is missing") && section.leads_to(&fault.path);
                if !unread {
                    section.fault_at(&fault.path, &fault.problem, fault.hint);
                }
            }
            return None;
        }
    };
    let whole = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    Some(Integration {
        name: name.to_owned(),
        sink,
        concurrency: whole(concurrency).unwrap_or(kind.concurrency),
        batch_size: whole(batch_size).unwrap_or(relay.settings.batch_size),
        timeout,
        retry,
        is_recorded_later: is_recorded_later(section),
    })
}

/// Whether SENT is recorded in the background.
fn is_recorded_later(section: &Section<'_>) -> bool {
    match section.string("record_sent").as_deref() {
        None | Some("at once") => false,
        Some("background") => {
            if section.string("transport").as_deref() == Some("bullmq") {
                let problem = "is for integrations that are delivered directly: what goes through \
                               BullMQ is recorded message by message";
                section.fault_at(&["record_sent"], problem, None);
            }
            true
        }
        Some(_) => {
            section.fault_at(&["record_sent"], "must be \"at once\" or \"background\"", None);
            false
        }
    }
}
