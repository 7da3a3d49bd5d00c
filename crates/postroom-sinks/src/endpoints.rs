//! The servers of a cluster: those that a URL names, and those that they have named themselves.

use crate::endpoint::Endpoint;
use crate::options::Options;
use postroom_core::{Outcome, url_per_host};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many servers a cluster may name.
const LEARNT_MAX: usize = 100;

/// The least time for one server, however many there are: TLS over some distance takes its time.
const PART_MIN: Duration = Duration::from_secs(1);

/// Where servers are that can stand in for each other. The URL has one login, path and scheme for
/// all of them: `nats://app:secret@a:4222,b:4222`.
#[derive(Clone)]
pub(crate) struct Endpoints {
    first: Endpoint,
    others: Vec<Endpoint>,
    /// What the cluster has said about itself, so that it is found again when all that the URL
    /// names are gone.
    learnt: Arc<Mutex<Vec<Endpoint>>>,
}

impl Endpoints {
    /// Reads the option `url`, which must be there, name one host or several, and have one of these
    /// schemes, each with its usual port.
    pub(crate) fn read(options: &mut Options, schemes: &[(&str, u16)]) -> Option<Self> {
        let text = Endpoint::read_text(options, schemes)?;
        match Self::parse(&text, schemes) {
            Ok(endpoints) => Some(endpoints),
            Err(problem) => {
                options.fault(&["url"], problem, None);
                None
            }
        }
    }

    fn parse(text: &str, schemes: &[(&str, u16)]) -> Result<Self, String> {
        if text.matches("://").count() > 1 {
            return Err("repeats its scheme: write it once, SCHEME://a:1,b:2".to_owned());
        }
        let mut parsed = url_per_host(text).into_iter().map(|url| Endpoint::parse(&url, schemes));
        let first = parsed.next().unwrap_or_else(|| Err("names no host".to_owned()))?;
        let others = parsed.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { first, others, learnt: Arc::default() })
    }

    /// The first server that the URL names: its scheme, login and path are those of all.
    pub(crate) fn first(&self) -> &Endpoint {
        &self.first
    }

    /// Whether the URL names more than one.
    pub(crate) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Gives the URL of each another path.
    pub(crate) fn set_path(&mut self, path: &str) {
        self.first.url.set_path(path);
        self.others.iter_mut().for_each(|endpoint| endpoint.url.set_path(path));
    }

    /// Those that the URL names, in its order, and then those that the cluster has named.
    pub(crate) fn all(&self) -> Vec<Endpoint> {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.first).chain(&self.others).chain(learnt.iter()).cloned().collect()
    }

    /// Remembers the servers that the cluster names, instead of those it named before.
    pub(crate) fn learn(&self, servers: impl IntoIterator<Item = (String, u16)>) {
        let named = std::iter::once(&self.first).chain(&self.others);
        let named: Vec<String> = named.map(Endpoint::place).collect();
        let others = servers.into_iter().filter_map(|(host, port)| self.first.at(&host, port));
        let others = others.filter(|server| !named.contains(&server.place()));
        *self.learnt.lock().unwrap_or_else(PoisonError::into_inner) =
            others.take(LEARNT_MAX).collect();
    }

    /// Connects to one server after the other, each within its part of `limit`, until one of them
    /// accepts the connection.
    ///
    /// # Errors
    /// As [`in_turn`].
    pub(crate) async fn connect<C, F>(
        &self,
        limit: Duration,
        connect: impl Fn(Endpoint, Duration) -> F,
    ) -> Result<C, Outcome>
    where
        F: Future<Output = Result<C, Outcome>>,
    {
        let all = self.all();
        let part = limit / u32::try_from(all.len()).unwrap_or(u32::MAX);
        let part = part.max(PART_MIN.min(limit));
        in_turn(&all, |endpoint| {
            let place = endpoint.place();
            let connecting = tokio::time::timeout(part, connect(endpoint.clone(), part));
            async move {
                connecting.await.unwrap_or_else(|_| {
                    Err(Outcome::retry(format!("no connection to {place} within {part:?}")))
                })
            }
        })
        .await
    }

    /// `host:port` of each that the URL names, which is all of it that an error text may show.
    pub(crate) fn place(&self) -> String {
        let named = std::iter::once(&self.first).chain(&self.others);
        named.map(Endpoint::place).collect::<Vec<_>>().join(", ")
    }
}

/// Connects to one server after the other until one of them accepts the connection.
///
/// # Errors
/// How each of them failed, or the first refusal: an operator has to act on that.
pub(crate) async fn in_turn<S, C, F>(servers: &[S], connect: impl Fn(&S) -> F) -> Result<C, Outcome>
where
    F: Future<Output = Result<C, Outcome>>,
{
    let (mut refusal, mut failures) = (None, Vec::new());
    for server in servers {
        match connect(server).await {
            Ok(connection) => return Ok(connection),
            Err(Outcome::Retry { error, .. }) => failures.push(error),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    Err(refusal.unwrap_or_else(|| Outcome::retry(failures.join("; "))))
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoints, String> {
        Endpoints::parse(text, &[("nats", 4222), ("tls", 4222)])
    }

    fn hosts(endpoints: &Endpoints) -> Vec<String> {
        endpoints.all().iter().map(Endpoint::place).collect()
    }

    #[test]
    fn several_hosts_share_scheme_login_and_path() {
        let several = parse("nats://ann:p,w@a:1,b,[::1]:3/x").unwrap();
        assert_eq!(several.place(), "a:1, b:4222, [::1]:3");
        assert!(several.are_several() && !parse("nats://a").unwrap().are_several());
        for endpoint in several.all() {
            assert_eq!(endpoint.login.unwrap().password.as_deref(), Some("p,w"));
            assert_eq!(endpoint.url.path(), "/x");
        }
    }

    #[test]
    fn every_host_must_be_one_and_nothing_is_shown() {
        for bad in [
            "nats://secret@a,,b",
            "nats://secret@a:1,b:x",
            "nats://",
            "http://secret@a,b",
            "nats://secret@a,nats://b",
        ] {
            let problem = parse(bad).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn what_a_cluster_names_comes_last_and_once() {
        let seeds = parse("nats://a:1,b:2").unwrap();
        let server = |host: &str, port| (host.to_owned(), port);
        seeds.learn([server("b", 2), server("c", 3), server("", 4)]);
        assert_eq!(hosts(&seeds), ["a:1", "b:2", "c:3"]);
        seeds.clone().learn([server("d", 4)]);
        assert_eq!(hosts(&seeds), ["a:1", "b:2", "d:4"], "what it says last holds, for all clones");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_accepts_is_taken_and_one_that_hangs_has_its_part_of_the_time() {
        let servers = parse("nats://dead,hanging,good,better").unwrap();
        let connected = servers.connect(Duration::from_secs(8), async |endpoint, part| {
            assert_eq!(part, Duration::from_secs(2));
            match endpoint.host() {
                "dead" => Err(Outcome::retry("refused")),
                "hanging" => std::future::pending().await,
                host => Ok(host.to_owned()),
            }
        });
        assert_eq!(connected.await, Ok("good".to_owned()));
        let many = parse("nats://a,b,c,d,e,f,g,h").unwrap();
        let part = |limit| many.connect(limit, async |_, part| Ok::<_, Outcome>(part));
        let (long, short) = (Duration::from_secs(4), Duration::from_millis(400));
        assert_eq!(part(long).await, Ok(PART_MIN), "enough to connect in");
        assert_eq!(part(short).await, Ok(short));
    }

    #[tokio::test(start_paused = true)]
    async fn when_none_accepts_each_failure_is_told_and_a_refusal_wins() {
        let limit = Duration::from_secs(2);
        let fail = async |endpoint: Endpoint, _| match endpoint.host() {
            "barred" => Err::<(), _>(Outcome::refuse("no")),
            host => Err(Outcome::retry(format!("{host} is down"))),
        };
        let down = parse("nats://a,b").unwrap().connect(limit, fail).await;
        assert_eq!(down, Err(Outcome::retry("a is down; b is down")));
        let barred = parse("nats://a,barred,b").unwrap().connect(limit, fail).await;
        assert_eq!(barred, Err(Outcome::refuse("no")));
    }
}
