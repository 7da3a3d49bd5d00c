//! URLs of databases.

use anyhow::Context as _;

/// `server_url` with another database's name in it.
pub(crate) fn with_database(server_url: &str, name: &str) -> anyhow::Result<String> {
    let authority = server_url
        .find("://")
        .map(|scheme| scheme + 3)
        .context("the server's URL has not the form scheme://user@host:port/database")?;
    let (address, query) = match server_url.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (server_url, String::new()),
    };
    let end = address[authority..].find('/').map_or(address.len(), |slash| authority + slash);
    Ok(format!("{}/{name}{query}", &address[..end]))
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn the_database_of_a_url_is_replaced_and_the_rest_kept() {
        let cases = [
            ("postgres://u:p@h:5432/app", "postgres://u:p@h:5432/fresh"),
            ("postgres://u@h", "postgres://u@h/fresh"),
            ("postgresql://h/a?sslmode=disable", "postgresql://h/fresh?sslmode=disable"),
            ("mysql://root@h:3306/mysql", "mysql://root@h:3306/fresh"),
        ];
        for (server, expected) in cases {
            assert_eq!(with_database(server, "fresh").unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        assert!(with_database("host=localhost", "fresh").is_err());
    }
}
