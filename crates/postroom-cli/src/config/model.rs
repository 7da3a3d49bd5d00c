//! A configuration that has been checked.

use super::DEFAULT_DATABASE;
use postroom_bullmq::{JobData, QueuePattern, Rate, RedisConfig, TenantRates};
use postroom_core::{AttemptLimit, RetryPolicy};
use postroom_relay::Settings;
use postroom_sinks::SinkConfig;
use postroom_store::{Layout, MigrateOptions, OpenOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything `run` needs.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file it came from; `None` when there was none.
    pub(crate) file: Option<PathBuf>,
    /// The outboxes: one without a name, or some that have one.
    pub(crate) databases: Vec<Database>,
    /// The relay as a whole; [`Config::settings`] has what is different for each outbox.
    pub(crate) relay: Settings,
    /// Where it delivers by itself.
    pub(crate) integrations: Vec<Integration>,
    /// What goes through BullMQ.
    pub(crate) queued: Vec<Queued>,
    /// Where the queues are.
    pub(crate) redis: RedisConfig,
    /// How fast tenants are served there.
    pub(crate) tenants: TenantRates,
    /// Where health and metrics are served.
    pub(crate) listen: Listen,
}

/// An outbox.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    /// What `[databases]` calls it.
    pub(crate) name: Option<String>,
    /// Its URL, which may hold a password.
    pub(crate) url: String,
    /// Who named it: an option, a variable or a file; `None` for the default.
    pub(crate) named_by: Option<String>,
    /// A URL that leads past a pooler, which may hold a password too.
    pub(crate) direct_url: Option<String>,
    /// Whether a pooler in transaction mode stands in between.
    pub(crate) transaction_pooler: bool,
    /// Whether to listen for new messages.
    pub(crate) notify: bool,
    /// What is kept of messages that were delivered.
    pub(crate) retention: Retention,
    /// How the message table is read and written, unless it is Postroom's own.
    pub(crate) layout: Option<Arc<Layout>>,
}

/// What is kept of messages that were delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// How long SENT messages are kept.
    pub(crate) keep_sent: Duration,
    /// For how long after its delivery an event is not delivered again, though its message is pruned.
    pub(crate) remember_events: Duration,
}

impl Retention {
    /// What stays for ever.
    pub(crate) const FOR_EVER: Duration = Duration::MAX;
}

impl Default for Retention {
    fn default() -> Self {
        Self { keep_sent: Settings::default().keep_sent, remember_events: Duration::ZERO }
    }
}

impl Database {
    /// The one that is used where nobody names another.
    pub(super) fn unnamed(retention: Retention) -> Self {
        Self {
            name: None,
            url: DEFAULT_DATABASE.to_owned(),
            named_by: None,
            direct_url: None,
            transaction_pooler: false,
            notify: true,
            retention,
            layout: None,
        }
    }

    /// Where a session of one's own is had: for migrations.
    pub(crate) fn session_url(&self) -> &str {
        self.direct_url.as_ref().unwrap_or(&self.url)
    }

    /// How to migrate it.
    pub(crate) fn migrating(&self, options: &MigrateOptions) -> MigrateOptions {
        MigrateOptions { layout: self.layout.clone(), ..options.clone() }
    }

    /// How to open it.
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            notify: self.notify,
            remember_events: self.retention.remember_events,
            transaction_pooler: self.transaction_pooler,
            direct_url: self.direct_url.clone(),
            layout: self.layout.clone(),
            ..OpenOptions::default()
        }
    }
}

/// One destination.
#[derive(Clone, Debug)]
pub(crate) struct Integration {
    /// `adapter:channel`.
    pub(crate) name: String,
    /// How it is reached.
    pub(crate) sink: SinkConfig,
    /// How many batches are under way at once.
    pub(crate) concurrency: usize,
    /// The most messages in a batch.
    pub(crate) batch_size: usize,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
    /// When to try again.
    pub(crate) retry: RetryPolicy,
    /// Whether its messages say SENT some time after they were delivered.
    pub(crate) is_recorded_later: bool,
}

/// An integration whose messages go through BullMQ.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    /// `adapter:channel`.
    pub(crate) name: String,
    /// How its queues are called.
    pub(crate) queue: QueuePattern,
    /// What its jobs carry.
    pub(crate) data: JobData,
    /// The most jobs that a relay has there.
    pub(crate) outstanding: usize,
    /// When to try again.
    pub(crate) retry: RetryPolicy,
    /// Who runs the jobs.
    pub(crate) workers: QueuedWorkers,
}

/// Who runs the jobs.
#[derive(Clone, Debug)]
pub(crate) enum QueuedWorkers {
    /// Ours.
    Own {
        /// How they deliver.
        integration: Box<Integration>,
        /// How fast.
        rate: Option<Rate>,
    },
    /// Somebody's BullMQ code.
    External,
}

impl Config {
    /// How the relay of an outbox works.
    pub(crate) fn settings(&self, database: &Database) -> Settings {
        Settings { keep_sent: database.retention.keep_sent, ..self.relay.clone() }
    }

    /// The names of everything that is delivered, directly or through BullMQ.
    pub(crate) fn names(&self) -> Vec<&str> {
        let direct = self.integrations.iter().map(|one| one.name.as_str());
        direct.chain(self.queued.iter().map(|one| one.name.as_str())).collect()
    }
}

/// Where health and metrics are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen {
    /// The address.
    pub(crate) address: SocketAddr,
    /// Whether the file asked for it; the default may be in use by another relay.
    pub(crate) asked_for: bool,
}

/// The keys of a `retry` table that were written; the rest is inherited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryKeys {
    pub(crate) base: Option<Duration>,
    pub(crate) multiplier: Option<f64>,
    pub(crate) cap: Option<Duration>,
    pub(crate) jitter: Option<Duration>,
    pub(crate) max_attempts: Option<AttemptLimit>,
}

impl RetryKeys {
    /// `inherited` with these keys in their place.
    pub(crate) fn over(self, inherited: RetryPolicy) -> RetryPolicy {
        RetryPolicy {
            base: self.base.unwrap_or(inherited.base),
            multiplier: self.multiplier.unwrap_or(inherited.multiplier),
            cap: self.cap.unwrap_or(inherited.cap),
            jitter: self.jitter.unwrap_or(inherited.jitter),
            max_attempts: self.max_attempts.unwrap_or(inherited.max_attempts),
        }
    }
}
