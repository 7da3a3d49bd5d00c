//! The sections `[database]` (or one of `[databases]`), `[relay]`, `[retention]` and `[server]`.

use super::environment::Overrides;
use super::layout;
use super::model::{Database, Listen, Retention, RetryKeys};
use super::reader::Section;
use super::{ATTEMPTS_MAX, BATCH_SIZE_MAX};
use postroom_core::{AttemptLimit, RetryPolicy};
use postroom_relay::Settings;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How long something may be kept.
const RETENTION: RangeInclusive<Duration> =
    Duration::ZERO..=Duration::from_secs(36_500 * 24 * 3_600);
const MS: Duration = Duration::from_millis(1);

/// Any delay that is worth writing down.
const DELAYS: RangeInclusive<Duration> = MS..=Duration::from_secs(365 * 24 * 3_600);

/// The `[relay]` section.
pub(super) struct Relay {
    pub(super) settings: Settings,
    /// What integrations inherit.
    pub(super) retry: RetryPolicy,
}

/// `[retention]`, or that of one database, over what it inherits.
pub(super) fn retention(section: Option<&Section<'_>>, mut retention: Retention) -> Retention {
    let Some(section) = section else { return retention };
    section.expect_only(&["sent", "dedupe"]);
    set(&mut retention.keep_sent, section.duration("sent", RETENTION));
    set(&mut retention.remember_events, section.duration("dedupe", RETENTION));
    retention
}

/// `[database]`, or one of `[databases]`: what describes one outbox is read here and nowhere else. `named` is the URL
/// that is used instead of its own.
pub(super) fn database(
    section: Option<&Section<'_>>,
    retention: Retention,
    file: Option<&Path>,
    named: Option<&str>,
) -> Database {
    let mut database = Database::unnamed(retention);
    let Some(section) = section else { return database };
    let mut known = vec!["url", "direct_url", "pooler", "layout", "notify"];
    known.extend(layout::KEYS);
    if section.is_nested() {
        // The only one has `[retention]`.
        known.push("retention");
    }
    section.expect_only(&known);
    let url = |key| {
        let url = section.string(key)?;
        if let Err(error) = postroom_store::migrations(&url) {
            section.fault_at(&[key], &format!("is wrong: {error}"), None);
        }
        Some(url)
    };
    if let Some(url) = url("url") {
        let named_by = file.map(|file| file.display().to_string());
        database = Database { url, named_by, ..database };
    }
    database.direct_url = url("direct_url");
    database.transaction_pooler = match section.string("pooler").as_deref() {
        None | Some("session") => false,
        Some("transaction") => true,
        Some(_) => {
            section.fault_at(&["pooler"], "must be \"session\" or \"transaction\"", None);
            false
        }
    };
    database.layout = layout::layout(section, named.unwrap_or(&database.url));
    database.notify = section.boolean("notify").unwrap_or(database.notify);
    database
}

pub(super) fn relay(root: &Section<'_>, overrides: &Overrides) -> Relay {
    let mut settings = Settings::default();
    let mut retry = RetryPolicy::default();
    if let Some(section) = root.section("relay") {
        section.expect_only(&[
            "poll_interval",
            "batch_size",
            "claim_time",
            "retry",
            "dead_letter",
            "lag_threshold",
            "payload_limit",
            "stop_limit",
        ]);
        let whole =
            |key, most| section.integer(key, 1..=most).and_then(|n| usize::try_from(n).ok());
        set(&mut settings.poll_interval, section.duration("poll_interval", MS..=HOUR));
        set(&mut settings.batch_size, whole("batch_size", BATCH_SIZE_MAX));
        set(&mut settings.claim_time, section.duration("claim_time", 1000 * MS..=DAY));
        set(&mut settings.lag_threshold, section.duration("lag_threshold", MS..=365 * DAY));
        set(&mut settings.stop_limit, section.duration("stop_limit", Duration::ZERO..=HOUR));
        let limit = section.size("payload_limit", 1..=1 << 30);
        set(&mut settings.payload_limit, limit.and_then(|n| usize::try_from(n).ok()));
        settings.dead_letter = section.string("dead_letter");
        if settings.dead_letter.as_deref().is_some_and(|name| !is_integration(name)) {
            section.fault_at(&["dead_letter"], NO_INTEGRATION, None);
        }
        retry = retry_keys(&section).over(retry);
    }
    set(&mut settings.poll_interval, overrides.poll_interval);
    set(&mut settings.batch_size, overrides.batch_size);
    if let Some(name) = &overrides.dead_letter {
        settings.dead_letter = Some(name.clone());
    }
    Relay { settings, retry }
}

/// Where deaths are announced, for those who read nothing else of `[relay]`.
pub(super) fn dead_letter(root: &Section<'_>, overrides: &Overrides) -> Option<String> {
    let said = root.section("relay").and_then(|section| section.string("dead_letter"));
    overrides.dead_letter.clone().or(said)
}

/// The `retry` table of a section, as far as it is written.
pub(super) fn retry_keys(section: &Section<'_>) -> RetryKeys {
    let Some(section) = section.section("retry") else { return RetryKeys::default() };
    section.expect_only(&["base", "multiplier", "cap", "jitter", "max_attempts"]);
    let keys = RetryKeys {
        base: section.duration("base", DELAYS),
        multiplier: section.number("multiplier", 1.0..=1000.0),
        cap: section.duration("cap", DELAYS),
        jitter: section.duration("jitter", Duration::ZERO..=*DELAYS.end()),
        max_attempts: max_attempts(&section),
    };
    if let (Some(base), Some(cap)) = (keys.base, keys.cap)
        && cap < base
    {
        section.fault_at(&["cap"], "is shorter than base", None);
    }
    keys
}

fn max_attempts(section: &Section<'_>) -> Option<AttemptLimit> {
    const KEY: &str = "max_attempts";
    match section.json(KEY)? {
        serde_json::Value::String(word) if word == "forever" => Some(AttemptLimit::Forever),
        serde_json::Value::Number(number) => {
            let number = number.as_u64().filter(|n| (1..=ATTEMPTS_MAX).contains(n));
            let limit = number.and_then(|n| u32::try_from(n).ok()).map(AttemptLimit::AtMost);
            if limit.is_none() {
                section.fault_at(&[KEY], "must be at least 1, or \"forever\"", None);
            }
            limit
        }
        _ => {
            section.fault_at(&[KEY], "must be a whole number or \"forever\"", None);
            None
        }
    }
}

pub(super) fn listen(root: &Section<'_>) -> Listen {
    let mut listen =
        Listen { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 7878)), asked_for: false };
    let Some(section) = root.section("server") else { return listen };
    section.expect_only(&["listen"]);
    if let Some(text) = section.string("listen") {
        match text.parse() {
            Ok(address) => listen = Listen { address, asked_for: true },
            Err(_) => section.fault_at(
                &["listen"],
                "must be an address and a port such as \"127.0.0.1:7878\"",
                Some("\"0.0.0.0:7878\" listens on every interface".to_owned()),
            ),
        }
    }
    listen
}

/// What is wrong with a name that is no integration.
pub(super) const NO_INTEGRATION: &str =
    "must be an integration such as \"kafka:payments\", of at most 120 characters";

/// Whether a name can stand in the outbox.
pub(super) fn is_integration(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= 120 && !name.chars().any(char::is_control)
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}
