//! Opening the outbox for a command.

use crate::config::{Database, Origin};
use crate::failure::Failure;
use anyhow::anyhow;
use postroom_core::{Store, StoreError, StoreErrorKind, Upkeep as _};
use postroom_relay::{DeadlineStore, Deadlines};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The one outbox that a command works on, and says so.
///
/// # Errors
/// Where several are configured, and none was named.
pub(super) fn named(origin: &Origin<'_>, json: bool) -> Result<Database, Failure> {
    let mut databases = origin.databases()?;
    match (databases.pop(), databases.is_empty()) {
        (Some(database), true) => {
            announce(&database, json);
            Ok(database)
        }
        (last, _) => {
            databases.extend(last);
            Err(which(&databases))
        }
    }
}

/// Asks for the name of one.
pub(super) fn which(databases: &[Database]) -> Failure {
    Failure::Usage(format!("which database? name one by --database: {}", names(databases)))
}

/// The names of outboxes.
pub(super) fn names(databases: &[Database]) -> String {
    let names: Vec<&str> = databases.iter().filter_map(|one| one.name.as_deref()).collect();
    names.join(", ")
}

/// All outboxes that a command works on, and says so.
pub(super) fn all(origin: &Origin<'_>, json: bool) -> Result<Vec<Database>, Failure> {
    let databases = origin.databases()?;
    databases.iter().for_each(|database| announce(database, json));
    Ok(databases)
}

/// Says on standard error which outbox a command works on, and who named it. Whoever asked for
/// JSON reads no such lines.
pub(super) fn announce(database: &Database, json: bool) {
    if !json {
        let named_by = database.named_by.as_deref().unwrap_or("default");
        let name = database.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        eprintln!("outbox{name}: {} ({named_by})", shown(&database.url));
    }
}

/// Opens an outbox that is there. Makes none: a typing error should not leave an empty file behind.
pub(super) async fn open(database: &Database) -> Result<Arc<dyn Store>, Failure> {
    expect_file(database)?;
    let store = postroom_store::open(&database.url, &database.options()).await?;
    let store = Arc::new(DeadlineStore::new(store, Deadlines::of_tools()));
    store.ready().await.map_err(|error| failed(error, &database.url))?;
    Ok(store)
}

/// Fails where there is no file of a SQLite outbox.
pub(super) fn expect_file(database: &Database) -> Result<(), Failure> {
    match sqlite_path(&database.url) {
        Some(path) if !path.exists() => Err(Failure::Failed(anyhow!(
            "there is no outbox at {}: make one with `postroom migrate`, or name another with \
             --database",
            shown(&database.url)
        ))),
        _ => Ok(()),
    }
}

/// What a store's error says to people: where the database cannot be reached, it names the place.
pub(super) fn failed(error: StoreError, url: &str) -> Failure {
    match error.kind {
        StoreErrorKind::Unavailable => Failure::Failed(
            anyhow::Error::new(error).context(format!("cannot reach the outbox at {}", place(url))),
        ),
        StoreErrorKind::Conflict | StoreErrorKind::Schema | StoreErrorKind::Refused => error.into(),
    }
}

/// Where a database is: its host and port, the port being the usual one where none is named, or
/// its file.
fn place(url: &str) -> String {
    let shown = shown(url);
    let Some((scheme, rest)) = shown.split_once("://").filter(|(scheme, _)| *scheme != "sqlite")
    else {
        return shown;
    };
    let hosts = rest.split('/').next().unwrap_or_default();
    let port = if scheme.starts_with("postgres") { 5432 } else { 3306 };
    let hosts: Vec<String> = hosts
        .split(',')
        .map(|host| match host.rsplit_once(':') {
            Some((_, digits)) if digits.parse::<u16>().is_ok() => host.to_owned(),
            _ if host.is_empty() || host == "…" => shown.clone(),
            _ => format!("{host}:{port}"),
        })
        .collect();
    hosts.join(",")
}

/// Makes or upgrades an embedded outbox, which belongs to nobody else. A table of somebody else's is migrated by whoever
/// means to.
pub(super) async fn migrate_embedded(database: &Database) -> Result<(), Failure> {
    if database.layout.is_none() && sqlite_path(&database.url).is_some() {
        postroom_store::migrate(&database.url).await?;
    }
    Ok(())
}

/// The file of a SQLite outbox.
pub(super) fn sqlite_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    Some(Path::new(path.strip_prefix("//").unwrap_or(path)).to_owned())
}

/// A URL without what may be secret: user, password and options.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "sqlite")
    else {
        return url.split('?').next().unwrap_or_default().to_owned();
    };
    let (user, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    // A `?` before the `@`: a password with one in it, or options; nobody can tell which.
    if user.contains('?') {
        return format!("{scheme}://…");
    }
    format!("{scheme}://{}", place.split('?').next().unwrap_or_default())
}

/// Whether a URL holds a password.
pub(super) fn has_password(url: &str) -> bool {
    let rest = match url.split_once("://") {
        Some((scheme, rest)) if scheme != "sqlite" => rest,
        _ => return false,
    };
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':') || rest.contains("password=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_noticed() {
        assert!(has_password("postgres://app:secret@db/shop"));
        assert!(has_password("postgres://db/shop?user=app&password=secret"));
        assert!(has_password("postgres://app:se/cr?et@db/shop"));
        assert!(!has_password("postgres://app@db:5432/shop"));
        assert!(!has_password("sqlite://postroom.db"));
    }

    #[test]
    fn a_place_is_a_host_and_a_port() {
        assert_eq!(place("postgres://app:p@ss@db/shop?sslmode=require"), "db:5432");
        assert_eq!(place("postgres://app@a,b:5433/shop"), "a:5432,b:5433");
        assert_eq!(place("postgres://app@[::1]:5433/shop"), "[::1]:5433");
        assert_eq!(place("mariadb://app@db:3307/shop"), "db:3307");
        assert_eq!(place("mysql://db/shop"), "db:3306");
        assert_eq!(place("sqlite://data/postroom.db"), "sqlite://data/postroom.db");
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        assert_eq!(shown("postgres://app:p@ss@db:5432/shop?sslkey=x"), "postgres://db:5432/shop");
        assert_eq!(shown("postgres://app:se?cret@db/shop?sslmode=require"), "postgres://…");
        assert_eq!(shown("postgres://db/shop?user=app&password=a@b"), "postgres://…");
        assert_eq!(shown("mysql://app:p@ss@db/shop?ssl-ca=x"), "mysql://db/shop");
        assert_eq!(shown("mariadb://app:p@ss@db/shop"), "mariadb://db/shop");
        assert_eq!(shown("sqlite://data/postroom.db"), "sqlite://data/postroom.db");
    }
}
