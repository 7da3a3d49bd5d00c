//! Which servers an integration's `url` names, and in what relation they stand.

use super::link;
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::options::Options;

/// Where Redis is.
#[derive(Clone, Debug)]
pub(super) enum Servers {
    /// One server.
    One(Endpoint),
    /// Nodes of a cluster, each of which knows the others.
    Cluster(Endpoints),
    /// Sentinels, which know where the server of this name is at the moment.
    Sentinels {
        /// Their URL's path is the number of the database of the server they lead to.
        sentinels: Endpoints,
        primary: String,
    },
}

const SCHEMES: [(&str, u16); 4] =
    [("redis", 6379), ("rediss", 6379), ("redis+sentinel", 26379), ("rediss+sentinel", 26379)];

impl Servers {
    /// Reads `url` and `cluster`.
    pub(super) fn read(options: &mut Options) -> Option<Self> {
        let endpoints = Endpoints::read(options, &SCHEMES);
        let is_cluster = options.optional("cluster", "true or false").unwrap_or(false);
        let endpoints = endpoints?;
        if endpoints.first().url.scheme().ends_with("+sentinel") {
            if is_cluster {
                let problem = "is for clusters, and this `url` names Sentinels";
                options.fault(&["cluster"], problem, None);
            }
            return Self::read_sentinels(options, endpoints);
        }
        if let Err(problem) = link::database(endpoints.first()) {
            options.fault(&["url"], problem, None);
        }
        if is_cluster {
            return Some(Self::Cluster(endpoints));
        }
        if endpoints.are_several() {
            let hint = "set `cluster` to true, or name Sentinels: redis+sentinel://a,b,c/NAME";
            options.fault(
                &["url"],
                "names several hosts that are no cluster",
                Some(hint.to_owned()),
            );
        }
        Some(Self::One(endpoints.first().clone()))
    }

    /// The path is `/NAME` or `/NAME/DATABASE`.
    fn read_sentinels(options: &mut Options, mut sentinels: Endpoints) -> Option<Self> {
        let path = sentinels.first().url.path().trim_start_matches('/').to_owned();
        let (primary, database) = path.split_once('/').unwrap_or((&path, ""));
        let primary = percent_encoding::percent_decode_str(primary).decode_utf8();
        let Some(primary) = primary.ok().filter(|primary| !primary.is_empty()) else {
            let hint = "redis+sentinel://HOST:26379/NAME, with the name that the Sentinels monitor";
            options.fault(&["url"], "does not name the primary", Some(hint.to_owned()));
            return None;
        };
        let primary = primary.into_owned();
        sentinels.set_path(database);
        if let Err(problem) = link::database(sentinels.first()) {
            options.fault(&["url"], problem, None);
        }
        Some(Self::Sentinels { sentinels, primary })
    }

    /// Whether connections are encrypted.
    pub(super) fn use_tls(&self) -> bool {
        let first = match self {
            Self::One(server) => server,
            Self::Cluster(endpoints) | Self::Sentinels { sentinels: endpoints, .. } => {
                endpoints.first()
            }
        };
        first.url.scheme().starts_with("rediss")
    }

    /// What error texts call them.
    pub(super) fn place(&self) -> String {
        match self {
            Self::One(server) => server.place(),
            Self::Cluster(seeds) => seeds.place(),
            Self::Sentinels { sentinels, primary } => {
                format!("the primary `{primary}` of the Sentinels at {}", sentinels.place())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(options: Value) -> Result<Servers, Vec<String>> {
        let Value::Object(options) = options else { panic!("a table") };
        let mut options = Options::new(options);
        let servers = Servers::read(&mut options);
        let faults = options.finish(&["url", "cluster"]);
        let faults: Vec<String> = faults.into_iter().map(|fault| fault.problem).collect();
        match servers {
            Some(servers) if faults.is_empty() => Ok(servers),
            _ => Err(faults),
        }
    }

    #[test]
    fn a_server_a_cluster_and_sentinels_are_told_apart() {
        assert!(matches!(read(json!({"url": "redis://a/1"})), Ok(Servers::One(_))));
        let cluster = read(json!({"url": "redis://a:1,b", "cluster": true})).unwrap();
        assert_eq!(cluster.place(), "a:1, b:6379");
        let url = "rediss+sentinel://:hunter2@a,b:5/my%20primary/2";
        let found = read(json!({"url": url})).unwrap();
        assert!(found.use_tls());
        assert_eq!(found.place(), "the primary `my primary` of the Sentinels at a:26379, b:5");
        let Servers::Sentinels { sentinels, .. } = &found else { panic!("{found:?}") };
        assert_eq!(link::database(sentinels.first()), Ok(2));
    }

    #[test]
    fn what_does_not_fit_together_is_a_fault() {
        for (options, problem) in [
            (json!({"url": "redis://a,b"}), "several hosts"),
            (json!({"url": "redis+sentinel://a"}), "the primary"),
            (json!({"url": "redis+sentinel://a/x/y"}), "number of a database"),
            (json!({"url": "redis+sentinel://a/x", "cluster": true}), "Sentinels"),
            (json!({"url": "redis://a/x"}), "number of a database"),
            (json!({"url": "redis://a,redis://b"}), "scheme"),
        ] {
            let faults = read(options).unwrap_err();
            assert!(faults[0].contains(problem), "{faults:?}");
        }
    }
}
