//! Opening the outbox for a command.

use crate::config::Database;
use crate::failure::Failure;
use anyhow::anyhow;
use postroom_core::{Store, Upkeep as _};
use postroom_relay::{DeadlineStore, Deadlines};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens an outbox to look at. Makes none: a typing error should not leave an empty file behind.
pub(super) async fn open(database: &Database) -> Result<Arc<dyn Store>, Failure> {
    if let Some(path) = sqlite_path(&database.url)
        && !path.exists()
    {
        return Err(Failure::Failed(anyhow!(
            "there is no outbox at {}: make one with `postroom migrate`, or name another with \
             --database",
            shown(&database.url)
        )));
    }
    let store = postroom_store::open(&database.url, &database.options()).await?;
    let store = Arc::new(DeadlineStore::new(store, Deadlines::of_tools()));
    store.ready().await?;
    Ok(store)
}

/// Makes or upgrades an embedded outbox, which belongs to nobody else.
pub(super) async fn migrate_embedded(database: &Database) -> Result<(), Failure> {
    if sqlite_path(&database.url).is_some() {
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
    fn a_url_is_shown_without_its_secrets() {
        assert_eq!(shown("postgres://app:p@ss@db:5432/shop?sslkey=x"), "postgres://db:5432/shop");
        assert_eq!(shown("postgres://app:se?cret@db/shop?sslmode=require"), "postgres://…");
        assert_eq!(shown("postgres://db/shop?user=app&password=a@b"), "postgres://…");
        assert_eq!(shown("mysql://app:p@ss@db/shop?ssl-ca=x"), "mysql://db/shop");
        assert_eq!(shown("mariadb://app:p@ss@db/shop"), "mariadb://db/shop");
        assert_eq!(shown("sqlite://data/postroom.db"), "sqlite://data/postroom.db");
    }
}
