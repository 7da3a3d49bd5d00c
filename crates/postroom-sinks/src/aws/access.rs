//! Where a service is, and who asks.

use super::Target;
use crate::options::Options;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use postroom_core::Outcome;
use std::time::Duration;
use url::Url;

/// Longer than any network on the way that works.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Where a user and password go that no URL may hold.
pub(crate) const LOGIN: &str = "those are `access_key_id` and `secret_access_key`";
/// Whoever names an endpoint of their own has no regions; signatures name one all the same.
const REGION_OF_ENDPOINTS: &str = "us-east-1";

/// What an integration says about that. What it leaves out, the SDK finds in the environment, in
/// the shared files, or by asking the machine it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) endpoint: Option<Url>,
    pub(crate) region: Option<String>,
    credentials: Option<Credentials>,
    /// How long a request may take.
    pub(crate) limit: Duration,
}

impl Access {
    /// Reads `endpoint`, `region`, `access_key_id`, `secret_access_key` and `session_token`.
    pub(crate) fn read(options: &mut Options, limit: Duration) -> Self {
        let endpoint = options.http_url("endpoint", Some(LOGIN));
        let region: Option<String> = options.optional("region", "a region such as \"eu-west-1\"");
        let id: Option<String> = options.optional("access_key_id", "a string");
        let secret: Option<String> = options.optional("secret_access_key", "a string");
        let token: Option<String> = options.optional("session_token", "a string");
        let credentials = match (id, secret) {
            (Some(id), Some(secret)) => {
                Some(Credentials::new(id, secret, token, None, "the integration's options"))
            }
            (None, None) => {
                if token.is_some() {
                    options.fault(&["session_token"], "needs `access_key_id` beside it", None);
                }
                None
            }
            (id, _) => {
                let (there, missing) = match id {
                    Some(_) => ("access_key_id", "secret_access_key"),
                    None => ("secret_access_key", "access_key_id"),
                };
                options.fault(&[there], format!("needs `{missing}` beside it"), None);
                None
            }
        };
        Self { endpoint, region, credentials, limit }
    }

    /// All that a service's client is made from.
    ///
    /// # Errors
    /// The refusal to report when nobody says which region it is.
    pub(crate) async fn sdk_config(&self, target: &Target) -> Result<SdkConfig, Outcome> {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(self.limit.min(CONNECT_MAX))
            .operation_timeout(self.limit);
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            // The outbox retries, and it alone.
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build())
            // The time limit covers it.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Ok(name) = AppName::new("postroom") {
            loader = loader.app_name(name);
        }
        let plain = self.endpoint.as_ref().is_some_and(|endpoint| endpoint.scheme() == "http");
        loader = if plain && self.credentials.is_some() {
            // No certificate is needed, so a machine that has none will do.
            loader.http_client(Builder::new().build_http())
        } else {
            let tls = Provider::Rustls(CryptoMode::Ring);
            loader.http_client(Builder::new().tls_provider(tls).build_https())
        };
        if let Some(credentials) = &self.credentials {
            loader = loader.credentials_provider(credentials.clone());
        }
        let own = self.endpoint.as_ref().map(|_| REGION_OF_ENDPOINTS);
        if let Some(region) = self.region.as_deref().or(own) {
            loader = loader.region(Region::new(region.to_owned()));
        }
        let config = loader.load().await;
        if config.region().is_none() {
            return Err(Outcome::refuse(format!(
                "nobody says in which region {} is: set the integration's `region`, or AWS_REGION",
                target.name
            )));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(values: Value) -> (Access, Vec<String>) {
        let Value::Object(values) = values else { panic!("a table") };
        let mut options = Options::new(values);
        let access = Access::read(&mut options, Duration::from_secs(1));
        let faults = options.finish(&[]);
        let faults = faults.iter().map(|one| format!("{} {}", one.path.join("."), one.problem));
        (access, faults.collect())
    }

    #[test]
    fn secrets_are_not_shown() {
        let (access, faults) = read(json!({"access_key_id": "AKIA1", "session_token": "hush",
            "secret_access_key": "hunter2", "region": "eu-west-1"}));
        assert_eq!(faults, [""; 0]);
        let shown = format!("{access:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("hush"), "{shown}");
    }

    #[test]
    fn half_a_login_is_a_fault() {
        for (values, fault) in [
            (json!({"access_key_id": "a"}), "access_key_id needs `secret_access_key` beside it"),
            (
                json!({"secret_access_key": "a"}),
                "secret_access_key needs `access_key_id` beside it",
            ),
            (json!({"session_token": "a"}), "session_token needs `access_key_id` beside it"),
            (json!({"endpoint": "ftp://x"}), "endpoint must begin with http:// or https://"),
        ] {
            assert_eq!(read(values).1, [fault]);
        }
        let faults = read(json!({"endpoint": "http://a:hunter2@x"})).1;
        assert!(faults[0].contains("user or password") && !faults[0].contains("hunter2"));
    }
}
