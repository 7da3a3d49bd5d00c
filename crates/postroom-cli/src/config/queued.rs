//! What belongs to the transport through BullMQ: its keys in an integration, `[redis]`, `[tenants]`.

use super::environment::Overrides;
use super::model::{Integration, Queued, QueuedWorkers};
use super::reader::Section;
use postroom_bullmq::{JobData, QueuePattern, Rate, Redis, RedisConfig, TenantRate, TenantRates};
use postroom_core::url_per_host;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The keys of an integration that mean something only here.
pub(super) const QUEUE_KEYS: [&str; 5] = ["queue", "workers", "outstanding", "job_data", "rate"];

const DEFAULT_REDIS: &str = "redis://127.0.0.1:6379";
const OUTSTANDING: usize = 10_000;
const OUTSTANDING_MAX: u64 = 1_000_000;
const PER_SECOND: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;
const BURST_MAX: u64 = 1_000_000;

/// How an integration's messages travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Transport {
    Direct,
    /// Through BullMQ, to workers of ours or of somebody else's.
    BullMq {
        is_external: bool,
    },
}

pub(super) fn transport(section: &Section<'_>) -> Transport {
    let is_queued = match section.string("transport").as_deref() {
        None | Some("direct") => false,
        Some("bullmq") => true,
        Some(_) => {
            section.fault_at(&["transport"], "must be \"direct\" or \"bullmq\"", None);
            return Transport::Direct;
        }
    };
    if is_queued {
        let is_external = match section.string("workers").as_deref() {
            None | Some("own") => false,
            Some("external") => true,
            Some(_) => {
                section.fault_at(&["workers"], "must be \"own\" or \"external\"", None);
                false
            }
        };
        return Transport::BullMq { is_external };
    }
    for key in section.keys().filter(|key| QUEUE_KEYS.contains(key)) {
        let hint = "write transport = \"bullmq\" beside it".to_owned();
        section.fault_at(&[key], "is for integrations that go through BullMQ", Some(hint));
    }
    Transport::Direct
}

/// An integration that goes through BullMQ. `own` is how our workers deliver.
pub(super) fn queued(
    name: &str,
    section: &Section<'_>,
    retry: postroom_core::RetryPolicy,
    own: Option<Integration>,
) -> Queued {
    let pattern = section.string("queue").map(|text| QueuePattern::parse(&text));
    let queue = match pattern {
        None => QueuePattern::default(),
        Some(Ok(queue)) => queue,
        Some(Err(problem)) => {
            let hint = "for instance \"outbox-{integration}\"".to_owned();
            section.fault_at(&["queue"], problem, Some(hint));
            QueuePattern::default()
        }
    };
    let data = match section.string("job_data").as_deref() {
        None | Some("full") => JobData::Full,
        Some("reference") => JobData::Reference,
        Some(_) => {
            section.fault_at(&["job_data"], "must be \"full\" or \"reference\"", None);
            JobData::Full
        }
    };
    let outstanding = section.integer("outstanding", 1..=OUTSTANDING_MAX);
    let workers = match own {
        Some(integration) => {
            let rate = rate(section).map(|rate| Rate {
                jobs: u64::from(rate.burst),
                per: Duration::from_secs_f64(f64::from(rate.burst) / rate.per_second),
            });
            QueuedWorkers::Own { integration: Box::new(integration), rate }
        }
        None => {
            if section.keys().any(|key| key == "rate") {
                let problem = "is for our own workers: others limit themselves";
                section.fault_at(&["rate"], problem, None);
            }
            QueuedWorkers::External
        }
    };
    Queued {
        name: name.to_owned(),
        queue,
        data,
        outstanding: outstanding.and_then(|n| usize::try_from(n).ok()).unwrap_or(OUTSTANDING),
        retry,
        workers,
    }
}

/// The `rate` table of a section.
fn rate(section: &Section<'_>) -> Option<TenantRate> {
    let section = section.section("rate")?;
    section.expect_only(&["per_second", "burst"]);
    let burst = section.integer("burst", 1..=BURST_MAX).and_then(|n| u32::try_from(n).ok());
    let Some(per_second) = section.number("per_second", PER_SECOND) else {
        if !section.keys().any(|key| key == "per_second") {
            section.fault("rate needs per_second", None);
        }
        return None;
    };
    // As many as come in a second, and at least one.
    let default = per_second.clamp(1.0, f64::from(u32::MAX)) as u32;
    Some(TenantRate { per_second, burst: burst.unwrap_or(default) })
}

pub(super) fn redis(root: &Section<'_>, overrides: &Overrides) -> RedisConfig {
    let mut config = RedisConfig { url: DEFAULT_REDIS.to_owned(), ..RedisConfig::default() };
    let section = root.section("redis");
    if let Some(section) = &section {
        section.expect_only(&["url", "prefix", "cluster", "ca_file"]);
        config.url = section.string("url").unwrap_or(config.url);
        config.prefix = section.string("prefix");
        config.cluster = section.boolean("cluster").unwrap_or(false);
        config.ca_file = section.string("ca_file").map(PathBuf::from);
    }
    let named = url_per_host(&config.url);
    match (&section, &named[..], overrides.redis_host.is_none(), overrides.redis_port) {
        (Some(section), [_, _, ..], true, Some(_)) => section.fault_at(
            &["url"],
            "names several hosts, and the environment variable REDIS_PORT is the port of one",
            Some("set REDIS_HOST as well, or neither of them".to_owned()),
        ),
        (_, [first, ..], ..) => config.url = moved(first, overrides).unwrap_or(config.url),
        (_, [], ..) => {}
    }
    if let (Err(fault), Some(section)) = (Redis::new(&config), &section) {
        section.fault_at(&[fault.key], &fault.problem, None);
    }
    config
}

/// The URL on the host and the port of the environment. User, password, database and TLS stay the
/// file's.
fn moved(url: &str, overrides: &Overrides) -> Option<String> {
    let Overrides { redis_host: host, redis_port: port, .. } = overrides;
    if host.is_none() && port.is_none() {
        return None;
    }
    let mut url = Url::parse(url).ok()?;
    if let Some(host) = host {
        let other = Url::parse(&RedisConfig::url_of(host, 0)).ok()?;
        url.set_host(other.host_str()).ok()?;
    }
    if let Some(port) = port {
        url.set_port(Some(*port)).ok()?;
    }
    Some(url.to_string())
}

pub(super) fn tenants(root: &Section<'_>) -> TenantRates {
    let mut rates = TenantRates::default();
    let Some(section) = root.section("tenants") else { return rates };
    for (name, tenant) in section.sections() {
        tenant.expect_only(&["rate"]);
        let Some(rate) = rate(&tenant) else { continue };
        if name == "default" {
            rates.default = Some(rate);
        } else {
            rates.named.insert(name, rate);
        }
    }
    rates
}
