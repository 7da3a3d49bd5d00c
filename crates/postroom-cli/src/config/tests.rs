//! Configurations as users write them, right and wrong.

use super::{Config, Origin, QueuedWorkers};
use postroom_bullmq::{JobData, Rate, TenantRate};
use postroom_core::{AttemptLimit, RetryPolicy};
use std::time::Duration;

mod databases;

const S: fn(u64) -> Duration = Duration::from_secs;

/// Reads a file with this text in an environment with these variables.
fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("postroom.toml");
    std::fs::write(&file, text).unwrap();
    let environment = |name: &str| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    let origin = Origin { file: Some(&file), database: None, environment: &environment };
    let shown = format!("{}:", file.display());
    origin.config().map_err(|faults| faults.to_string().replace(&shown, "FILE:"))
}

#[test]
fn the_whole_file_is_read() {
    let config = read(
        r#"
        [database]
        url = "postgres://app:${PASSWORD}@db/shop"
        layout = "integration"
        notify = false

        [relay]
        poll_interval = "250ms"
        batch_size = 50
        claim_time = "1m"
        retry = { base = "2s", multiplier = 3, cap = "5m", jitter = "0s", max_attempts = "forever" }
        dead_letter = "webhook:dead"
        lag_threshold = "10s"
        payload_limit = "1MiB"
        stop_limit = "3s"

        [integrations."webhook:partnerX"]
        url = "https://partner.example/hooks"
        timeout = "2s"
        headers = { Authorization = "Bearer ${PASSWORD}" }
        concurrency = 8
        batch_size = 10
        retry = { base = "1s", max_attempts = 8 }

        [integrations."file:audit"]
        path = "audit.jsonl"
        record_sent = "background"

        [retention]
        sent = "0s"
        dedupe = "30d"

        [server]
        listen = "127.0.0.1:0"
        "#,
        &[("PASSWORD", "hunter2")],
    )
    .unwrap();
    assert_eq!(config.databases[0].url, "postgres://app:hunter2@db/shop");
    assert!(!config.databases[0].notify);
    let relay = &config.relay;
    assert_eq!(relay.poll_interval, Duration::from_millis(250));
    assert_eq!((relay.batch_size, relay.claim_time), (50, S(60)));
    assert_eq!(relay.dead_letter.as_deref(), Some("webhook:dead"));
    assert_eq!((relay.lag_threshold, relay.stop_limit), (S(10), S(3)));
    assert_eq!(relay.payload_limit, 1 << 20);
    assert_eq!(config.settings(&config.databases[0]).keep_sent, S(0));
    assert!(config.listen.asked_for);

    let [file, webhook] = &config.integrations[..] else { panic!("two integrations") };
    assert_eq!((webhook.name.as_str(), webhook.timeout), ("webhook:partnerX", S(2)));
    assert_eq!((webhook.concurrency, webhook.batch_size), (8, 10));
    assert_eq!(
        webhook.retry,
        RetryPolicy {
            base: S(1),
            multiplier: 3.0,
            cap: S(300),
            jitter: S(0),
            max_attempts: AttemptLimit::AtMost(8),
        },
        "what it does not say, it inherits"
    );
    assert!(file.is_recorded_later && !webhook.is_recorded_later);
    assert_eq!(config.databases[0].options().remember_events, S(30 * 24 * 3_600));
    assert_eq!((file.concurrency, file.batch_size), (1, 50));
    assert_eq!(file.retry.max_attempts, AttemptLimit::Forever);
}

#[test]
fn an_empty_file_means_defaults() {
    let config = read("", &[]).unwrap();
    assert_eq!(config.databases[0].url, "sqlite://postroom.db");
    assert_eq!(config.relay.batch_size, 100);
    assert_eq!(config.databases[0].retention.keep_sent, S(7 * 24 * 3_600));
    assert!(config.integrations.is_empty());
    assert_eq!(config.listen.address.to_string(), "127.0.0.1:7878");
}

#[test]
fn attempts_are_the_rows_own_unless_the_file_says_otherwise() {
    let noop = "[integrations.noop]\n";
    let attempts = |text: &str| read(text, &[]).unwrap().integrations[0].retry.max_attempts;
    assert_eq!(attempts(noop), AttemptLimit::Message);
    assert_eq!(attempts(&format!("[relay]\nretry.base = \"1s\"\n{noop}")), AttemptLimit::Message);
    let both = format!("[relay]\nretry.max_attempts = 4\n{noop}retry.max_attempts = 2");
    assert_eq!(attempts(&both), AttemptLimit::AtMost(2));
    let relay = format!("[relay]\nretry.max_attempts = 4\n{noop}");
    assert_eq!(attempts(&relay), AttemptLimit::AtMost(4));
}

#[test]
fn the_environment_overrides_the_file() {
    let text = r#"
        [relay]
        batch_size = 7
        poll_interval = "9s"
        dead_letter = "noop:dead"
        [integrations."webhook:a"]
        url = "http://a.example/"
        timeout = "9s"
        retry.max_attempts = "forever"
        [integrations."noop:b"]
        timeout = "9s"
    "#;
    let config = read(
        text,
        &[
            ("OUTBOX_CLAIM_BATCH_SIZE", "20"),
            ("OUTBOX_MAX_ATTEMPTS", "3"),
            ("OUTBOX_TICK_INTERVAL_MS", "500"),
            ("OUTBOX_DEADLETTER_TOPIC", "outbox.dead"),
            ("WEBHOOK_TIMEOUT_MS", "1500"),
        ],
    )
    .unwrap();
    assert_eq!(config.relay.batch_size, 20);
    assert_eq!(config.relay.poll_interval, Duration::from_millis(500));
    assert_eq!(config.relay.dead_letter.as_deref(), Some("kafka:outbox.dead"));
    let [noop, webhook] = &config.integrations[..] else { panic!("two integrations") };
    assert_eq!(webhook.timeout, Duration::from_millis(1_500));
    assert_eq!(noop.timeout, S(9), "the variable is for webhooks");
    assert_eq!(webhook.retry.max_attempts, AttemptLimit::AtMost(3));
    assert_eq!(noop.retry.max_attempts, AttemptLimit::AtMost(3));
}

#[cfg(feature = "kafka")]
#[test]
fn brokers_come_from_the_environment_where_an_integration_names_none() {
    let text = "[integrations.\"kafka:a\"]\n[integrations.\"kafka:b\"]\nbrokers = \"own:9092\"\n";
    let config = read(text, &[("KAFKA_BROKERS", "given:9092")]).unwrap();
    let [a, b] = &config.integrations[..] else { panic!("two integrations") };
    assert!(format!("{:?}", a.sink).contains("given:9092"), "{:?}", a.sink);
    assert!(format!("{:?}", b.sink).contains("own:9092"), "{:?}", b.sink);
    let faults = read(text, &[("KAFKA_BROKERS", " ")]).unwrap_err();
    assert!(faults.contains("brokers is missing"), "{faults}");
}

#[test]
fn every_fault_is_reported_with_its_place_and_a_hint() {
    let faults = read(
        r#"[databse]
url = "x"

[relay]
poll_intervall = "100ms"
batch_size = 0
claim_time = 30
retry = { base = "5m", cap = "1m", max_attempts = 0 }

[integrations."webhok:x"]
url = "http://x.example"

[integrations."webhook:y"]
concurency = 3
timeout = "5 sec"
headers = { "bad name" = "x", ok = "${UNSET}" }

[integrations."pigeon:z"]

[eventlog]
url = "esdb://x"

[server]
listen = "7878"
"#,
        &[("WEBHOOK_TIMEOUT_MS", "soon")],
    )
    .unwrap_err();
    let expected = r#"the configuration has 16 faults:
  FILE:1:2: databse is unknown
      hint: did you mean `database`?
  FILE:5:1: relay.poll_intervall is unknown
      hint: did you mean `poll_interval`?
  FILE:6:1: relay.batch_size must be a whole number from 1 to 10000
  FILE:7:1: relay.claim_time must be a duration such as "100ms", "5s", "15m", "1h" or "7d"
      hint: write it as a string with its unit
  FILE:8:24: relay.retry.cap is shorter than base
  FILE:8:36: relay.retry.max_attempts must be at least 1, or "forever"
  FILE:10:15: there is no sink `webhok`
      hint: did you mean `webhook`? The part before `:` names the sink: SINKS
  FILE:13:15: integrations."webhook:y".url is missing: it must be an http or https URL
  FILE:14:1: integrations."webhook:y".concurency is unknown
      hint: did you mean `concurrency`?
  FILE:15:1: integrations."webhook:y".timeout must be a duration such as "100ms", "5s", "15m", "1h" or "7d"
  FILE:16:13: integrations."webhook:y".headers."bad name" has a name that HTTP does not allow
  FILE:16:36: integrations."webhook:y".headers.ok needs the environment variable UNSET, which is not set
  FILE:18:15: there is no sink `pigeon`
      hint: the part before `:` names the sink, one of: SINKS
  FILE:20:2: eventlog is unknown
      hint: known here: database, databases, relay, integrations, retention, server, redis, tenants
  FILE:24:1: server.listen must be an address and a port such as "127.0.0.1:7878"
      hint: "0.0.0.0:7878" listens on every interface
  the environment variable WEBHOOK_TIMEOUT_MS must be a whole number from 1 to 3600000
      hint: correct it, or `unset WEBHOOK_TIMEOUT_MS`"#;
    let sinks: Vec<&str> = postroom_sinks::registry::SINKS.iter().map(|kind| kind.name).collect();
    assert_eq!(faults, expected.replace("SINKS", &sinks.join(", ")));
}

#[test]
fn broken_toml_is_reported_with_its_place() {
    let faults = read("[relay]\nbatch_size = = 3\n\n[server\nlisten = 1\n", &[]).unwrap_err();
    assert!(faults.contains("FILE:2:"), "{faults}");
    assert!(faults.contains("FILE:4:"), "{faults}");
    let twice = read("[relay]\nbatch_size = 1\nbatch_size = 2\n", &[]).unwrap_err();
    assert!(twice.contains("FILE:3:1: duplicate key"), "{twice}");
}

#[test]
fn a_name_without_quotes_gets_the_hint_it_needs() {
    let faults = read("[integrations.webhook:x]\nurl = \"http://x\"\n", &[]).unwrap_err();
    assert!(faults.contains("names with `:` need quotes"), "{faults}");
}

#[test]
fn a_fault_never_shows_a_secret() {
    let text = r#"
        [database]
        url = "${URL}"
        [integrations."webhook:x"]
        url = "ftp://user:${SECRET}@host/"
        headers = { Authorization = "${SECRET}\n" }
        auth.basic = { user = "u", password = "${UNSET}" }
        secrets = ["whsec_${SECRET}!", "${SECRET}"]
        allow_addresses = ["${SECRET}"]
    "#;
    let variables = [("SECRET", "hunter2"), ("URL", "mysqld://app:hunter2@db/shop")];
    let faults = read(text, &variables).unwrap_err();
    assert!(faults.contains("database.url"), "{faults}");
    assert!(faults.contains("headers.Authorization"), "{faults}");
    assert!(faults.contains("secrets.0 is no base64"), "{faults}");
    assert!(faults.contains("secrets.1 must begin with"), "{faults}");
    assert!(faults.contains("allow_addresses.0 must be a network"), "{faults}");
    assert_eq!(faults.matches("auth.basic.password").count(), 1, "said once: {faults}");
    assert!(!faults.contains("hunter2"), "{faults}");
}

#[test]
fn wrong_types_are_faults_not_panics() {
    for text in [
        "database = 1",
        "integrations = 3",
        "[integrations]\nnoop = 1",
        "[integrations.noop]\nretry = 5",
        "[integrations.noop]\nretry.multiplier = 0.5",
        "[integrations.noop]\nretry.multiplier = nan",
        "[integrations.noop]\nretry.max_attempts = -1",
        "[integrations.noop]\nretry.max_attempts = 1.5",
        "[integrations.noop]\nretry.max_attempts = 99999999999999999999999",
        "[integrations.noop]\nconcurrency = 0x100000000000000000000000000000000",
        "[integrations.\"webhook:x\"]\nurl = [1]",
        "[integrations.\"webhook:x\"]\nurl = 1979-05-27",
        "[integrations.\"\"]",
        "[relay]\npayload_limit = \"1 stone\"",
        "[relay]\npayload_limit = 0",
        "[relay]\ndead_letter = \"\"",
        "[database]\nlayout = \"events\"",
        "[database]\nnotify = \"yes\"",
        "[retention]\nsent = \"-1d\"",
        "[retention]\ndedupe = 30",
        "[integrations.noop]\nrecord_sent = \"later\"",
        "[integrations.noop]\nrecord_sent = \"background\"\ntransport = \"bullmq\"",
        "\u{0}",
    ] {
        assert!(read(text, &[]).is_err(), "{text}");
    }
}

#[test]
fn without_a_file_the_built_in_integrations_are_served() {
    let five = |name: &str| (name == "OUTBOX_MAX_ATTEMPTS").then(|| "5".to_owned());
    let origin = Origin { file: None, database: Some("sqlite://x.db"), environment: &five };
    let config = origin.config().unwrap();
    assert_eq!(config.integrations[0].retry.max_attempts, AttemptLimit::AtMost(5));
    let names: Vec<&str> = config.integrations.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["noop", "stdout"]);
    assert_eq!(config.databases[0].url, "sqlite://x.db");
}

#[test]
fn the_environment_names_the_outbox_before_the_file() {
    let file = "[database]\nurl = \"postgres://db/shop\"\npooler = \"transaction\"\n\
                direct_url = \"postgres://direct/shop\"\n";
    let config = read(file, &[("DATABASE_URL", "sqlite://x.db")]).unwrap();
    assert_eq!(config.databases[0].url, "sqlite://x.db");
    assert_eq!(config.databases[0].named_by.as_deref(), Some("DATABASE_URL"));
    assert!(!config.databases[0].transaction_pooler && config.databases[0].direct_url.is_none());
    // A file that says more about the same database goes on doing so.
    let file = file.replace("postgres://db/shop", "${DATABASE_URL}");
    let config = read(&file, &[("DATABASE_URL", "postgres://db/shop")]).unwrap();
    assert!(config.databases[0].transaction_pooler && config.databases[0].direct_url.is_some());
    assert_eq!(config.databases[0].named_by.as_deref(), Some("DATABASE_URL"));
    let config = read("", &[("DATABASE_URL", " ")]).unwrap();
    assert_eq!(
        (config.databases[0].url.as_str(), config.databases[0].named_by.as_deref()),
        ("sqlite://postroom.db", None)
    );
    let faults = read("", &[("DATABASE_URL", "mongodb://u:hunter2@h")]).unwrap_err();
    assert!(faults.contains("DATABASE_URL") && !faults.contains("hunter2"), "{faults}");
}

#[test]
fn tools_need_the_database_section_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("postroom.toml");
    let text =
        "[database]\nurl = \"sqlite://a.db\"\n[integrations.\"webhook:x\"]\nurl = \"${SECRET}\"";
    std::fs::write(&file, text).unwrap();
    let nothing = |_: &str| None;
    let origin = Origin { file: Some(&file), database: None, environment: &nothing };
    assert!(origin.config().is_err());
    assert_eq!(origin.databases().unwrap()[0].url, "sqlite://a.db");
    let origin = Origin { database: Some("oracle://x"), ..origin };
    assert!(origin.databases().unwrap_err().to_string().contains("--database"));
}

#[test]
fn after_broken_syntax_only_the_syntax_is_reported() {
    let faults = read(
        "[relay]\nbatch = 5\n[database\nurl = \"sqlite://x.db\"\nuser = = 3\n[integratoins.a]\n",
        &[],
    )
    .unwrap_err();
    assert!(faults.contains("FILE:2:1: relay.batch is unknown"), "{faults}");
    assert!(faults.contains("FILE:3:10: unclosed table"), "{faults}");
    assert!(faults.contains("FILE:5:"), "{faults}");
    assert!(!faults.contains("integratoins"), "what follows may not be what was meant: {faults}");
    assert_eq!(faults.matches("FILE:5:").count(), 1, "{faults}");
}

#[test]
fn integrations_go_through_bullmq() {
    let config = read(
        r#"
        [redis]
        url = "rediss://app:${PASSWORD}@redis.example:6380/2"
        prefix = "{shop}"
        cluster = false

        [tenants]
        default = { rate = { per_second = 20 } }
        "acme" = { rate = { per_second = 0.5, burst = 3 } }

        [integrations."noop:own"]
        transport = "bullmq"
        queue = "out-{integration}-{tenant}"
        job_data = "reference"
        outstanding = 7
        rate = { per_second = 50, burst = 100 }
        concurrency = 3

        [integrations."kafka:payments"]
        transport = "bullmq"
        workers = "external"
        retry = { max_attempts = 8 }

        [integrations.noop]
        transport = "direct"
        "#,
        &[("PASSWORD", "hunter2")],
    )
    .unwrap();
    assert_eq!(config.names(), ["noop", "kafka:payments", "noop:own"]);
    let [external, own] = &config.queued[..] else { panic!("{:?}", config.queued) };
    assert!(matches!(external.workers, QueuedWorkers::External));
    assert_eq!(external.queue.name(&external.name, None), "outbox-kafka-payments");
    assert_eq!((external.outstanding, external.data), (10_000, JobData::Full));
    assert_eq!(external.retry.max_attempts, AttemptLimit::AtMost(8));
    assert_eq!(own.queue.name(&own.name, Some("acme")), "out-noop-own-acme");
    assert_eq!((own.outstanding, own.data), (7, JobData::Reference));
    let QueuedWorkers::Own { integration, rate } = &own.workers else { panic!("{own:?}") };
    assert_eq!((integration.concurrency, *rate), (3, Some(Rate { jobs: 100, per: S(2) })));
    let acme = TenantRate { per_second: 0.5, burst: 3 };
    assert_eq!(config.tenants.named["acme"], acme);
    assert_eq!(config.tenants.default, Some(TenantRate { per_second: 20.0, burst: 20 }));
    assert_eq!(config.redis.url, "rediss://app:hunter2@redis.example:6380/2");
    assert_eq!(config.redis.prefix.as_deref(), Some("{shop}"));
}

#[test]
fn the_environment_moves_redis() {
    let of = |file: &str, variables: &[(&str, &str)]| read(file, variables).unwrap().redis.url;
    assert_eq!(of("", &[]), "redis://127.0.0.1:6379");
    assert_eq!(of("", &[("REDIS_HOST", "r")]), "redis://r:6379");
    let both = [("REDIS_HOST", "::1"), ("REDIS_PORT", "7000")];
    assert_eq!(of("", &both), "redis://[::1]:7000");
    let file = "[redis]\nurl = \"rediss://app:secret@h/3\"";
    assert_eq!(of(file, &[("REDIS_PORT", "7000")]), "rediss://app:secret@h:7000/3");
    let cluster = "[redis]\nurl = \"redis://:secret@a:1,b:2\"\ncluster = true";
    assert_eq!(of(cluster, &[]), "redis://:secret@a:1,b:2");
    assert_eq!(of(cluster, &both), "redis://:secret@[::1]:7000");
    let faults = read(cluster, &[("REDIS_PORT", "7000")]).unwrap_err().to_string();
    assert!(faults.contains("REDIS_PORT") && !faults.contains("secret"), "{faults}");
}

#[test]
fn no_two_integrations_share_a_queue() {
    let with = |pattern: &str| {
        let one = format!("transport = \"bullmq\"\nqueue = \"{pattern}\"\n");
        let file = format!("[integrations.\"noop:a\"]\n{one}[integrations.\"noop:b\"]\n{one}");
        read(&file, &[])
    };
    let faults = with("orders").unwrap_err();
    assert!(faults.to_string().contains("its queue orders is that of noop:a too"), "{faults}");
    assert!(with("orders-{integration}").is_ok());
    // Those of tenants are known only later.
    assert!(with("orders-{tenant}").is_ok());
}

#[test]
fn faults_of_bullmq_are_told() {
    let faults = read(
        r#"
        [redis]
        url = "http://secret"

        [tenants]
        "acme" = { weight = 5, rate = { burst = 3 } }

        [integrations.noop]
        queue = "q"

        [integrations."noop:a"]
        transport = "rabbit"

        [integrations."noop:b"]
        transport = "bullmq"
        workers = "others"
        queue = "a:b"
        job_data = "none"
        outstanding = 0

        [integrations."kafka:c"]
        transport = "bullmq"
        workers = "external"
        brokers = "x"
        rate = { per_second = 1 }
        "#,
        &[],
    )
    .unwrap_err();
    for said in [
        "redis.url must begin with redis:// or rediss://",
        "tenants.acme.weight is unknown",
        "rate needs per_second",
        "integrations.noop.queue is for integrations that go through BullMQ",
        "\"direct\" or \"bullmq\"",
        "\"own\" or \"external\"",
        "holds a colon",
        "\"full\" or \"reference\"",
        "outstanding must be",
        "brokers is unknown",
        "rate is for our own workers",
    ] {
        assert!(faults.contains(said), "{said}\n{faults}");
    }
    assert!(!faults.contains("secret"), "{faults}");
}

/// `examples/adopting/` and `examples/nestjs/`: outboxes that have had timings before.
#[test]
fn the_examples_of_adopted_outboxes_have_their_owners_timings() {
    let variables =
        ["DATABASE_URL", "PARTNERX_URL", "EVENTS_URL", "NATS_URL", "ORDERS_URL", "FULFILMENT_URL"]
            .map(|name| match name {
                "DATABASE_URL" => (name, "postgres://app@localhost/shop"),
                "NATS_URL" => (name, "nats://nats.example:4222"),
                _ => (name, "https://service.example/hook"),
            });
    let example = |text: &str| read(text, &variables).unwrap();
    // The shortest and the longest delay after each failure, in seconds.
    let delays = |retry: &RetryPolicy| {
        let exact = RetryPolicy { jitter: S(0), ..*retry };
        let delays = (1..=12).map(|failed| exact.delay(failed, &mut rand::rng()).as_secs_f64());
        (delays.collect::<Vec<_>>(), retry.jitter)
    };

    let integration_outbox =
        include_str!("../../../../examples/adopting/integration-outbox/postroom.toml");
    let nestjs = include_str!("../../../../examples/nestjs/postroom.toml");
    let minutes = |all: [f64; 12]| all.map(|one| one * 60.0).to_vec();
    let quarter_of_an_hour =
        minutes([1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0]);
    let config = example(integration_outbox);
    assert_eq!((config.relay.poll_interval, config.relay.batch_size), (S(1), 100));
    assert_eq!(config.relay.dead_letter.as_deref(), Some("kafka:outbox.dead"));
    assert_eq!(config.integrations.len(), 0);
    assert_eq!(config.queued.len(), 3);
    for queued in &config.queued {
        assert_eq!(delays(&queued.retry), (quarter_of_an_hour.clone(), S(10)));
        assert_eq!(queued.retry.max_attempts, AttemptLimit::Message);
    }
    let config = example(nestjs);
    assert_eq!(config.relay.poll_interval, S(1));
    assert_eq!(delays(&config.integrations[0].retry), (quarter_of_an_hour, S(10)));

    let config = example(include_str!("../../../../examples/adopting/outbox-events/postroom.toml"));
    assert_eq!(config.relay.poll_interval, Duration::from_millis(100));
    assert_eq!((config.relay.batch_size, config.relay.lag_threshold), (100, S(5)));
    let retry = &config.integrations[0].retry;
    let (all, jitter) = delays(retry);
    assert_eq!((all[0], all[8], all[9], all[11], jitter), (0.1, 25.6, 30.0, 30.0, S(0)));
    assert_eq!(retry.max_attempts, AttemptLimit::Forever);
    assert!(!retry.is_exhausted(u32::MAX, 1));

    let config =
        example(include_str!("../../../../examples/adopting/billing-events/postroom.toml"));
    assert_eq!(config.relay.poll_interval, S(2));
    assert_eq!(config.integrations.len(), 2);
    for integration in &config.integrations {
        let (all, jitter) = delays(&integration.retry);
        assert_eq!(all[..9], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]);
        assert_eq!((all[9], all[11]), (300.0, 300.0));
        assert!(jitter < S(1));
        assert_eq!(integration.retry.max_attempts, AttemptLimit::AtMost(10));
    }

    // min(1 s * 2^attempts, 60 s), where `attempts` counts the failed one.
    let config = example(include_str!("../../../../examples/adopting/kata/postroom.toml"));
    assert_eq!(config.relay.batch_size, 50);
    let wanted: Vec<f64> = (1..=12).map(|attempts| 2_f64.powi(attempts).min(60.0)).collect();
    assert_eq!(delays(&config.integrations[0].retry), (wanted, S(0)));
    assert_eq!(config.integrations[0].retry.max_attempts, AttemptLimit::Forever);
}
