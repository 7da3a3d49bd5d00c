//! Environment variables that override the configuration file.

use super::fault::{Fault, Place};
use super::sections::{NO_INTEGRATION, is_integration};
use postroom_bullmq::RedisConfig;
use std::time::Duration;
use url::Url;

/// What the environment says. What is not set, or set to nothing, changes nothing.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Overrides {
    /// `OUTBOX_CLAIM_BATCH_SIZE`: `relay.batch_size`.
    pub(crate) batch_size: Option<usize>,
    /// `OUTBOX_MAX_ATTEMPTS`: `retry.max_attempts` of every integration.
    pub(crate) max_attempts: Option<u32>,
    /// `OUTBOX_TICK_INTERVAL_MS`: `relay.poll_interval`.
    pub(crate) poll_interval: Option<Duration>,
    /// `OUTBOX_DEADLETTER_TOPIC`: `relay.dead_letter`.
    pub(crate) dead_letter: Option<String>,
    /// `WEBHOOK_TIMEOUT_MS`: `timeout` of every webhook.
    pub(crate) webhook_timeout: Option<Duration>,
    /// `REDIS_HOST`: the host in `redis.url`.
    pub(crate) redis_host: Option<String>,
    /// `REDIS_PORT`: the port in `redis.url`.
    pub(crate) redis_port: Option<u16>,
    /// `KAFKA_BROKERS`: `brokers` of every Kafka integration that names none.
    pub(crate) kafka_brokers: Option<String>,
}

impl Overrides {
    /// Reads the variables; what makes no sense is a fault that names its variable.
    pub(crate) fn read(
        environment: &dyn Fn(&str) -> Option<String>,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let mut number = |name: &str, most: u64| {
            let text = environment(name).filter(|text| !text.trim().is_empty())?;
            let number = text.trim().parse().ok().filter(|number| (1..=most).contains(number));
            if number.is_none() {
                faults.push(Fault {
                    place: Place::Outside,
                    problem: format!(
                        "the environment variable {name} must be a whole number from 1 to {most}"
                    ),
                    hint: Some(format!("correct it, or `unset {name}`")),
                });
            }
            number
        };
        let batch_size = number("OUTBOX_CLAIM_BATCH_SIZE", super::BATCH_SIZE_MAX);
        let max_attempts = number("OUTBOX_MAX_ATTEMPTS", super::ATTEMPTS_MAX);
        let poll_interval = number("OUTBOX_TICK_INTERVAL_MS", 3_600_000);
        let webhook_timeout = number("WEBHOOK_TIMEOUT_MS", 3_600_000);
        let redis_port = number("REDIS_PORT", u64::from(u16::MAX));
        Self {
            batch_size: batch_size.and_then(|n| usize::try_from(n).ok()),
            max_attempts: max_attempts.and_then(|n| u32::try_from(n).ok()),
            poll_interval: poll_interval.map(Duration::from_millis),
            dead_letter: dead_letter(environment, faults),
            webhook_timeout: webhook_timeout.map(Duration::from_millis),
            redis_host: redis_host(environment, faults),
            redis_port: redis_port.and_then(|n| u16::try_from(n).ok()),
            kafka_brokers: environment("KAFKA_BROKERS").filter(|text| !text.trim().is_empty()),
        }
    }
}

fn redis_host(
    environment: &dyn Fn(&str) -> Option<String>,
    faults: &mut Vec<Fault>,
) -> Option<String> {
    let host = environment("REDIS_HOST").filter(|text| !text.trim().is_empty())?;
    let host = host.trim();
    let url = Url::parse(&RedisConfig::url_of(host, 1)).ok();
    // A host and nothing else: no scheme, user, port or path.
    let is_host = url.is_some_and(|url| {
        url.port() == Some(1)
            && url.username().is_empty()
            && matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if !is_host {
        faults.push(Fault {
            place: Place::Outside,
            problem: "the environment variable REDIS_HOST must be the name or address of a host"
                .to_owned(),
            hint: Some(
                "the port is REDIS_PORT's, and all else belongs into `redis.url`".to_owned(),
            ),
        });
        return None;
    }
    Some(host.to_owned())
}

fn dead_letter(
    environment: &dyn Fn(&str) -> Option<String>,
    faults: &mut Vec<Fault>,
) -> Option<String> {
    const NAME: &str = "OUTBOX_DEADLETTER_TOPIC";
    let topic = environment(NAME).filter(|text| !text.trim().is_empty())?;
    // A bare topic is one of Kafka's, which is what the variable was made for.
    let topic = topic.trim();
    let name = if topic.contains(':') { topic.to_owned() } else { format!("kafka:{topic}") };
    if !is_integration(&name) {
        let problem = format!("the environment variable {NAME} {NO_INTEGRATION}");
        faults.push(Fault { place: Place::Outside, problem, hint: None });
        return None;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Overrides, Vec<Fault>) {
        let mut faults = Vec::new();
        let environment = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        (Overrides::read(&environment, &mut faults), faults)
    }

    #[test]
    fn every_variable_is_read() {
        let (overrides, faults) = read(&[
            ("OUTBOX_CLAIM_BATCH_SIZE", "50"),
            ("OUTBOX_MAX_ATTEMPTS", "3"),
            ("OUTBOX_TICK_INTERVAL_MS", "1000"),
            ("OUTBOX_DEADLETTER_TOPIC", "outbox.dead"),
            ("WEBHOOK_TIMEOUT_MS", "5000"),
            ("REDIS_HOST", "redis.example"),
            ("REDIS_PORT", "6380"),
            ("KAFKA_BROKERS", "a:9092,b:9092"),
        ]);
        assert!(faults.is_empty());
        assert_eq!(
            overrides,
            Overrides {
                batch_size: Some(50),
                max_attempts: Some(3),
                poll_interval: Some(Duration::from_secs(1)),
                dead_letter: Some("kafka:outbox.dead".to_owned()),
                webhook_timeout: Some(Duration::from_secs(5)),
                redis_host: Some("redis.example".to_owned()),
                redis_port: Some(6380),
                kafka_brokers: Some("a:9092,b:9092".to_owned()),
            }
        );
        assert_eq!(read(&[("OUTBOX_MAX_ATTEMPTS", " ")]).0, Overrides::default());
        let (overrides, _) = read(&[("OUTBOX_DEADLETTER_TOPIC", "webhook:dead")]);
        assert_eq!(overrides.dead_letter.as_deref(), Some("webhook:dead"));
    }

    #[test]
    fn the_host_of_redis_is_a_host() {
        for host in ["localhost", " redis.example ", "10.0.0.7", "::1", "[::1]"] {
            let (overrides, faults) = read(&[("REDIS_HOST", host)]);
            assert_eq!(overrides.redis_host.as_deref(), Some(host.trim()));
            assert!(faults.is_empty(), "{host}");
        }
        for rubbish in ["redis://h", "h:6379", "h/0", "u@h", "a b", "h?x", "h#x", "[::1]:7"] {
            let (overrides, faults) = read(&[("REDIS_HOST", rubbish)]);
            assert_eq!(overrides.redis_host, None, "{rubbish}");
            assert!(faults[0].problem.contains("REDIS_HOST"), "{rubbish}");
        }
    }

    #[test]
    fn rubbish_is_a_fault_that_names_its_variable() {
        for rubbish in ["0", "-1", "ten", "1e3", "99999999999999999999"] {
            let (overrides, faults) = read(&[("OUTBOX_MAX_ATTEMPTS", rubbish)]);
            assert_eq!(overrides.max_attempts, None);
            assert!(faults[0].problem.contains("OUTBOX_MAX_ATTEMPTS"), "{rubbish}");
        }
    }
}
