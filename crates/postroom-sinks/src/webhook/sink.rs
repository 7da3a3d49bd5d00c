//! One client, and one request per message.

use super::classify::{answered, unanswered};
use super::config::WebhookConfig;
use super::request::{headers, place};
use super::resolver::{Lookup, System, Vetting};
use crate::registry::BuildError;
use crate::tls::choose_provider;
use async_trait::async_trait;
use chrono::Utc;
use postroom_core::{Message, Outcome, ProbeError, RESPONSE_BYTES, Report, Sink};
use reqwest::{Client, Method, Request, Response};
use std::sync::Arc;
use std::time::Duration;

/// The most of an answer's body that is read, to be able to use its connection again.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long an outcome waits for the body of a failed attempt that is to be kept.
const RESPONSE_WAIT: Duration = Duration::from_secs(1);

/// Sends messages to one URL over a pool of connections that stay open. Follows no redirect, uses
/// no proxy, and connects to no address but those it may.
pub struct WebhookSink {
    client: Client,
    config: WebhookConfig,
    place: String,
}

impl WebhookSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When the URL leads where it may not, or the TLS client cannot be set up, such as on a
    /// machine without root certificates.
    pub fn new(config: WebhookConfig) -> Result<Self, BuildError> {
        Self::with_lookup(config, Arc::new(System))
    }

    fn with_lookup(config: WebhookConfig, lookup: Arc<dyn Lookup>) -> Result<Self, BuildError> {
        let place = place(&config.url);
        // The client asks no resolver about a URL that shows its address by itself.
        config.allowed.check_url(&config.url).map_err(|refused| BuildError {
            context: format!("cannot send to {place}"),
            source: Box::new(refused),
        })?;
        let client = client(&config, lookup)?;
        Ok(Self { client, config, place })
    }

    async fn post(&self, message: &Message) -> Result<Response, Outcome> {
        let mut wrapped = self.config.wrapping.wrap(message)?;
        let mut request = Request::new(Method::POST, self.config.url.clone());
        *request.headers_mut() = headers(&self.config, &mut wrapped, Utc::now())?;
        *request.body_mut() = Some(wrapped.body.into());
        self.client.execute(request).await.map_err(|error| self.unanswered(error))
    }

    fn unanswered(&self, error: reqwest::Error) -> Outcome {
        unanswered(&self.place, self.config.timeout, error)
    }
}

fn client(config: &WebhookConfig, lookup: Arc<dyn Lookup>) -> Result<Client, BuildError> {
    choose_provider();
    let vetting = Vetting { lookup, allowed: config.allowed.clone() };
    let mut builder = Client::builder()
        // A little before the lane gives up, so that the error can name the host.
        .timeout(config.timeout - config.timeout / 50)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .dns_resolver(Arc::new(vetting))
        // Whatever other crates enable: an answer is never unpacked.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(concat!("postroom/", env!("CARGO_PKG_VERSION")))
        // Shorter than what servers and balancers usually allow, so that we close first.
        .pool_idle_timeout(Duration::from_secs(30));
    builder = config.tls.apply(builder)?;
    if config.url.scheme() == "http" && config.tls.trusts_the_system() {
        // No certificate is needed, so a machine that has none will do.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| BuildError {
        context: "cannot set up TLS: check the integration's `tls`, and that the system's root \
                  certificates are installed (package ca-certificates)"
            .to_owned(),
        source: Box::new(error),
    })
}

#[async_trait]
impl Sink for WebhookSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            match self.post(message).await {
                Err(outcome) => report.outcome(index, outcome),
                Ok(mut response) => {
                    // The status is the receiver's word. What its body does afterwards cannot
                    // take that back, so it is reported first.
                    let outcome = answered(&self.place, response.status(), response.headers());
                    if self.config.keep_response && outcome != Outcome::Delivered {
                        let beginning = beginning(&mut response).await;
                        if !beginning.is_empty() {
                            report.response(index, beginning);
                        }
                    }
                    report.outcome(index, outcome);
                    drain(response).await;
                }
            }
        }
    }

    fn batch_max(&self) -> usize {
        1
    }

    /// Asks for the head of the URL: any answer shows that name, port and certificate are right.
    async fn probe(&self) -> Result<(), ProbeError> {
        match self.client.head(self.config.url.clone()).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.unanswered(error).into()),
        }
    }
}

/// The beginning of an answer's body, as far as it comes soon: the outcome waits for it.
async fn beginning(response: &mut Response) -> String {
    let mut read = Vec::new();
    let reading = async {
        while read.len() < RESPONSE_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            let room = RESPONSE_BYTES - read.len();
            read.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
    };
    let _ = tokio::time::timeout(RESPONSE_WAIT, reading).await;
    // A character that the limit cuts in two is left out.
    while let Err(error) = std::str::from_utf8(&read)
        && error.error_len().is_none()
    {
        read.truncate(error.valid_up_to());
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// Reads a bounded part of the body, so that the connection can be used again. One that is
/// larger costs its connection instead. The client's timeout covers this too.
async fn drain(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > BODY_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::sink_contract::{deliver_all, message};
    use postroom_testkit::{Receiver, eventually};
    use std::io;
    use std::net::{IpAddr, TcpListener};
    use std::sync::Mutex;

    /// Gives the answer of the moment, and counts the questions.
    struct Changing {
        answer: Mutex<Vec<IpAddr>>,
        asked: Mutex<usize>,
    }

    impl Changing {
        fn new(answer: &[&str]) -> Arc<Self> {
            let changing = Self { answer: Mutex::default(), asked: Mutex::default() };
            changing.set(answer);
            Arc::new(changing)
        }

        fn set(&self, answer: &[&str]) {
            *self.answer.lock().unwrap() = answer.iter().map(|ip| ip.parse().unwrap()).collect();
        }

        fn asked(&self) -> usize {
            *self.asked.lock().unwrap()
        }
    }

    #[async_trait]
    impl Lookup for Changing {
        async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            assert_eq!(name, "partner.example");
            *self.asked.lock().unwrap() += 1;
            Ok(self.answer.lock().unwrap().clone())
        }
    }

    /// 127.0.0.1 stands for the public internet, 127.0.0.2 for what is behind the relay.
    fn sink(port: u16, lookup: &Arc<Changing>) -> WebhookSink {
        let config = WebhookConfig::new(&format!("http://partner.example:{port}/")).unwrap();
        let config = config.allow("127.0.0.1").unwrap().timeout(Duration::from_secs(5));
        WebhookSink::with_lookup(config, Arc::clone(lookup) as Arc<dyn Lookup>).unwrap()
    }

    fn is_refused(outcomes: &[Outcome]) -> bool {
        matches!(outcomes, [Outcome::Refuse { error }] if error.contains("127.0.0.2"))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fault_33_a_name_that_changes_its_address_gains_nothing() {
        let receiver = Receiver::start();
        let port = receiver.address().port();
        let within = TcpListener::bind(("127.0.0.2", port)).unwrap();
        within.set_nonblocking(true).unwrap();

        // First public, then private: the connection goes to what was vetted, without asking
        // again, and the next connection is refused.
        let lookup = Changing::new(&["127.0.0.1"]);
        let changing = sink(port, &lookup);
        assert_eq!(deliver_all(&changing, &[message("e-1")]).await, [Outcome::Delivered]);
        assert_eq!(lookup.asked(), 1);
        lookup.set(&["127.0.0.2"]);
        receiver.refuse();
        receiver.listen();
        // Until the client has noticed the end of the old connection, which may be at once or
        // when it uses it.
        let outcomes = eventually("an outcome", Duration::from_secs(10), async || {
            let outcomes = deliver_all(&changing, &[message("e-2")]).await;
            (!matches!(outcomes[..], [Outcome::Retry { .. }])).then_some(outcomes)
        })
        .await;
        assert!(is_refused(&outcomes), "{outcomes:?}");

        // Private from the start, also among others and as IPv6.
        let changing = sink(port, &Changing::new(&["127.0.0.2"]));
        assert!(is_refused(&deliver_all(&changing, &[message("e-4")]).await));
        let changing = sink(port, &Changing::new(&["127.0.0.2", "127.0.0.1"]));
        assert_eq!(deliver_all(&changing, &[message("e-5")]).await, [Outcome::Delivered]);
        let changing = sink(port, &Changing::new(&["::ffff:127.0.0.1"]));
        let outcomes = deliver_all(&changing, &[message("e-6")]).await;
        assert!(matches!(outcomes[..], [Outcome::Refuse { .. }]), "{outcomes:?}");

        assert_eq!(receiver.count(), 2);
        let nobody = within.accept().unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock, "nothing reached what is within");
    }
}
