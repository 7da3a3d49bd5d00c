//! What an integration says about its table.

use super::sink::PostgresSink;
use super::statement::{DEFAULT_COLUMNS, FIELDS, Field, Statement};
use crate::options::{Options, nearest};
use crate::registry::{Build, BuildError, Destination};
use crate::wrapping::Wrapping;
use postroom_core::Sink;
use postroom_core::url_per_host;
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// PostgreSQL cuts longer names.
const NAME_BYTES_MAX: usize = 63;

/// Which database, which table, and what goes into which column.
#[derive(Clone)]
pub struct PostgresConfig {
    /// One for each host that the URL names, in its order.
    pub(super) servers: Vec<tokio_postgres::Config>,
    /// Whether a certificate must be made out to the host's name.
    pub(super) checks_name: bool,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) statement: Statement,
    pub(super) wrapping: Wrapping,
    /// How long one batch may take.
    pub(super) timeout: Duration,
}

impl PostgresConfig {
    pub(super) fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let expected = "a URL such as postgres://USER:PASSWORD@HOST:5432/DATABASE";
        let url: Option<String> = options.required("url", expected);
        let servers = url.and_then(|url| {
            let (url, checks_name) = with_known_words(&url);
            let parsed = servers(&url).map(|servers| (servers, checks_name));
            if parsed.is_none() {
                let hint = "`sslmode` in it is disable, prefer, require, verify-ca or \
                            verify-full, `target_session_attrs` is read-write, primary or any; \
                            authorities go to `ca_file`";
                options.fault(&["url"], format!("must be {expected}"), Some(hint.to_owned()));
            }
            parsed
        });
        let ca_file = options.optional("ca_file", "the path of a PEM file");
        let table: Option<String> = options.optional("table", "the name of a table");
        let table = table.unwrap_or_else(|| to.channel().to_owned());
        let parts: Vec<&str> = table.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            let hint = "TABLE or SCHEMA.TABLE; it is the part after `:` of the integration's name \
                        unless `table` says otherwise";
            options.fault(&["table"], "is no name of a table", Some(hint.to_owned()));
        }
        let columns = read_columns(options);
        let wrapping = Wrapping::read(options);
        let statement = Statement::new(&parts, columns?);
        let (servers, checks_name) = servers?;
        let timeout = to.own_timeout();
        Some(Self {
            servers: servers.into_iter().map(|one| with_limits(one, timeout)).collect(),
            checks_name,
            ca_file,
            statement,
            wrapping,
            timeout,
        })
    }

    /// `host:port` of each host, or the folder of a Unix socket.
    pub(super) fn place(&self) -> String {
        self.servers.iter().map(place).collect::<Vec<_>>().join(", ")
    }
}

/// `host:port`, or the folder of a Unix socket.
pub(super) fn place(server: &tokio_postgres::Config) -> String {
    let port = server.get_ports().first().copied().unwrap_or(5432);
    match server.get_hosts().first() {
        Some(Host::Tcp(host)) => format!("{host}:{port}"),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => format!("{}:{port}", folder.display()),
        None => "PostgreSQL".to_owned(),
    }
}

/// The servers of a URL, one for each of its hosts. Rows are written: of several, only one that
/// takes writes will do, unless the URL says otherwise.
fn servers(url: &str) -> Option<Vec<tokio_postgres::Config>> {
    let whole: tokio_postgres::Config = url.parse().ok()?;
    if whole.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        return None;
    }
    let (hosts, each) = (whole.get_hosts().len(), url_per_host(url));
    let chooses = hosts > 1 && !url.contains("target_session_attrs=");
    // Where the driver reads the URL in another way, it is left to the driver.
    let mut servers = if hosts == each.len() {
        each.iter().map(|one| one.parse().ok()).collect::<Option<Vec<_>>>()?
    } else {
        vec![whole]
    };
    for server in servers.iter_mut().filter(|_| chooses) {
        server.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    (hosts > 0).then_some(servers)
}

/// The URL in the driver's words, which has none for how a certificate is checked and for a
/// primary; and whether a certificate's name is checked.
fn with_known_words(url: &str) -> (String, bool) {
    let mut checks_name = true;
    // As the driver reads it: the credentials end at the first `@`, and may hold a `?`.
    let host = url.find('@').map_or(0, |at| at + 1);
    let Some(question) = url[host..].find('?') else { return (url.to_owned(), checks_name) };
    let (address, query) = url.split_at(host + question + 1);
    let known = query.split('&').map(|pair| match pair {
        "sslmode=verify-full" => "sslmode=require",
        "sslmode=verify-ca" => {
            checks_name = false;
            "sslmode=require"
        }
        "target_session_attrs=primary" => "target_session_attrs=read-write",
        other => other,
    });
    let query = known.collect::<Vec<_>>().join("&");
    (format!("{address}{query}"), checks_name)
}

fn with_limits(mut server: tokio_postgres::Config, timeout: Duration) -> tokio_postgres::Config {
    if server.get_application_name().is_none() {
        server.application_name("postroom");
    }
    if server.get_connect_timeout().is_none() {
        server.connect_timeout(timeout);
    }
    // A network that swallows packets must not hold a connection for a quarter of an hour.
    server.tcp_user_timeout(Duration::from_secs(30));
    server
}

/// Columns and what goes into each. One holds the idempotency key.
fn read_columns(options: &mut Options) -> Option<Vec<(String, Field)>> {
    if !options.has("columns") {
        let default = DEFAULT_COLUMNS.iter().map(|(column, field)| ((*column).to_owned(), *field));
        return Some(default.collect());
    }
    let table: Map<String, Value> =
        options.optional("columns", "a table of columns and what goes into each")?;
    let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    let mut columns = Vec::with_capacity(table.len());
    for (column, value) in table {
        let word = value.as_str().unwrap_or_default();
        let field = FIELDS.iter().find(|(name, _)| *name == word);
        match field {
            Some((_, field)) if is_name(&column) => columns.push((column, *field)),
            Some(_) => options.fault(&["columns", &column], "is no name of a column", None),
            None => {
                let hint = nearest(word, &names).map_or_else(
                    || format!("one of {}", names.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                let problem = "must name something that a message has";
                options.fault(&["columns", &column], problem, Some(hint));
            }
        }
    }
    let keys = columns.iter().filter(|(_, field)| *field == Field::IdempotencyKey).count();
    if keys != 1 {
        let problem = "must give `idempotency_key` to one column, which needs a UNIQUE constraint";
        options.fault(&["columns"], problem, None);
        return None;
    }
    Some(columns)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0')
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("server", &self.place())
            .field("table", &self.statement.table())
            .finish_non_exhaustive()
    }
}

impl Build for PostgresConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(PostgresSink::new(self.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::{Destination, SinkKind};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn read(options: Value) -> Result<String, Vec<String>> {
        let Value::Object(options) = options else { panic!("a table") };
        let to = Destination { integration: "postgres:events", timeout: Duration::from_secs(1) };
        let read = SinkKind::of("postgres:x").unwrap().validate(options, &to);
        read.map(|config| format!("{config:?}")).map_err(|faults| {
            let faults = faults.into_iter();
            faults.map(|fault| format!("{} {}", fault.path.join("."), fault.problem)).collect()
        })
    }

    #[test]
    fn how_a_certificate_is_checked_is_taken_out_of_the_url() {
        let split = super::with_known_words;
        for (mode, checks_name) in [("verify-ca", false), ("verify-full", true)] {
            let url = format!("postgres://u:a?b@h/d?connect_timeout=3&sslmode={mode}");
            let plain = "postgres://u:a?b@h/d?connect_timeout=3&sslmode=require".to_owned();
            assert_eq!(split(&url), (plain, checks_name));
        }
        for url in ["postgres://u:sslmode=verify-ca@h/d", "postgres://h/d?sslmode=prefer"] {
            assert_eq!(split(url), (url.to_owned(), true));
        }
        let url = "postgres://u:hunter2@h/d?sslmode=verify-none";
        assert!(read(json!({"url": url})).unwrap_err()[0].starts_with("url must be"));
    }

    #[test]
    fn of_several_hosts_one_that_takes_writes_is_wanted() {
        use tokio_postgres::config::TargetSessionAttrs::{Any, ReadWrite};
        for (url, expected) in [
            ("postgres://u@a/d", vec![Any]),
            ("postgres://u@a:1,b/d", vec![ReadWrite; 2]),
            ("postgres://u@a,b/d?target_session_attrs=any", vec![Any; 2]),
            ("postgres://u@a/d?target_session_attrs=primary", vec![ReadWrite]),
        ] {
            let servers = super::servers(&super::with_known_words(url).0).unwrap();
            let found: Vec<_> =
                servers.iter().map(|server| server.get_target_session_attrs()).collect();
            assert_eq!(found, expected, "{url}");
        }
        let shown = read(json!({"url": "postgres://u:hunter2@a:1,b/d"})).unwrap();
        assert!(shown.contains("a:1, b:5432") && !shown.contains("hunter2"), "{shown}");
        for url in ["postgres://u@a,b/d?target_session_attrs=read-only", "postgres://u@a,b:x/d"] {
            assert!(read(json!({"url": url})).unwrap_err()[0].starts_with("url must be"), "{url}");
        }
    }

    #[test]
    fn every_fault_is_found_and_no_password_shown() {
        assert!(read(json!({})).unwrap_err()[0].starts_with("url is missing"));
        let faults = read(json!({
            "url": "postgres://u:hunter2@h:x/d", "table": "a.b.c",
            "columns": {"id": "event", "k": "idempotency_key"},
        }));
        let faults = faults.unwrap_err();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(!format!("{faults:?}").contains("hunter2"));
        let url = "postgres://u:hunter2@db.example/shop";
        let keyless = read(json!({"url": url, "columns": {"id": "event_id"}}));
        assert!(keyless.unwrap_err()[0].starts_with("columns must give `idempotency_key`"));
        let shown = read(json!({"url": url})).unwrap();
        assert!(shown.contains("db.example:5432") && shown.contains("events"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
