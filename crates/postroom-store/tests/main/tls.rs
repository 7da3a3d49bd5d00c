//! TLS to PostgreSQL: who is let through, and what is said to those who are not.

use postroom_core::{Store, StoreErrorKind};
use postroom_store::OpenOptions;
use postroom_testkit::{Authority, Postgres};
use std::error::Error as _;
use std::sync::Arc;

/// A server whose certificate is made out to `db.example`, and what its clients say to it.
struct Server {
    authority: Authority,
    server: Postgres,
    _files: postroom_testkit::CertificateFiles,
}

impl Server {
    async fn start() -> Self {
        let authority = Authority::new();
        let files = authority.issue(&["db.example"], "postgres");
        let (certificate, key) = (files.certificate().display(), files.key().display());
        let server = Postgres::private(&[
            ("ssl", "on"),
            ("ssl_cert_file", &certificate.to_string()),
            ("ssl_key_file", &key.to_string()),
        ])
        .await
        .expect("a server with TLS");
        postroom_store::migrate(server.url()).await.expect("migrated");
        Self { authority, server, _files: files }
    }

    /// A URL that reaches the server under `host`, with these parameters.
    fn url(&self, host: &str, parameters: &str) -> String {
        let url = self.server.url().replacen("127.0.0.1", host, 1);
        format!("{url}?hostaddr=127.0.0.1&{parameters}")
    }

    async fn open(&self, host: &str, parameters: &str) -> Result<Arc<dyn Store>, String> {
        let url = self.url(host, parameters);
        let store = postroom_store::open(&url, &OpenOptions::default()).await;
        let store = store.map_err(|error| error.to_string())?;
        store.ready().await.map_err(|error| {
            assert_eq!(error.kind, StoreErrorKind::Refused, "no use in trying again: {error}");
            error.to_string()
        })?;
        Ok(store)
    }

    /// Of the connections to the server but this one, how many are encrypted and how many plain.
    async fn connections(&self) -> (i64, i64) {
        let (client, connection) =
            tokio_postgres::connect(self.server.url(), tokio_postgres::NoTls).await.expect("asks");
        tokio::spawn(connection);
        let row = client
            .query_one(
                "SELECT count(*) FILTER (WHERE s.ssl), count(*) FILTER (WHERE NOT s.ssl)
                 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
                 WHERE a.application_name = 'postroom'",
                &[],
            )
            .await
            .expect("counts");
        (row.get(0), row.get(1))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_as_sslmode_says() {
    let server = Server::start().await;
    let trusted = format!("sslrootcert={}", server.authority.file().display());
    let stranger = Authority::new();
    let strange = format!("sslrootcert={}", stranger.file().display());

    for (host, parameters) in [
        ("db.example", format!("sslmode=verify-full&{trusted}")),
        // Another name is no matter where only the authority is asked.
        ("other.example", format!("sslmode=verify-ca&{trusted}")),
        ("other.example", format!("sslmode=require&{trusted}")),
        // Encrypted with whoever answers, as libpq does.
        ("other.example", "sslmode=require".to_owned()),
        ("other.example", "sslmode=prefer".to_owned()),
    ] {
        let store = server.open(host, &parameters).await.unwrap_or_else(|e| panic!("{e}"));
        store.backlog().await.expect("it works");
        assert!(server.connections().await.0 > 0, "{parameters} encrypts");
    }
    let untrusted = "an authority that is not trusted";
    for (host, parameters, part) in [
        ("db.example", format!("sslmode=verify-full&{strange}"), untrusted),
        ("db.example", format!("sslmode=verify-ca&{strange}"), untrusted),
        ("db.example", format!("sslmode=require&{strange}"), untrusted),
        // Not one of those that the system trusts.
        ("db.example", "sslmode=verify-full".to_owned(), untrusted),
        ("other.example", format!("sslmode=verify-full&{trusted}"), "made out to another host"),
        ("db.example", "sslmode=verify-full&sslrootcert=/no/such".to_owned(), "/no/such"),
        ("db.example", "sslmode=sometimes".to_owned(), "unknown sslmode"),
    ] {
        let refused = server.open(host, &parameters).await.err().expect("refused");
        assert!(refused.contains(part), "{parameters}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_store_works_encrypted_and_only_where_it_is_asked_for() {
    let server = Server::start().await;
    let trusted = server.authority.file();
    let parameters = format!("sslmode=verify-full&sslrootcert={}", trusted.display());
    let url = server.url("db.example", &parameters);
    assert!(postroom_store::migrate(&url).await.expect("migrate").is_empty());
    let store = server.open("db.example", &parameters).await.expect("a store");
    let mut wake = store.wake().await.expect("a signal");
    wake.busy(true).await;
    wake.busy(false).await;
    let message = postroom_core::NewMessage::new("noop", "t");
    store.enqueue(&message).await.expect("enqueued");
    wake.woken().await;
    let (encrypted, plain) = server.connections().await;
    assert!(encrypted >= 2 && plain == 0, "{encrypted} encrypted, {plain} plain");
    drop((store, wake));

    let plain = server.open("db.example", "sslmode=disable").await.expect("a store");
    plain.backlog().await.expect("it works");
    assert!(server.connections().await.1 > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let server = Postgres::shared().await;
    let url = format!("{}?sslmode=require", server.url());
    let store = postroom_store::open(&url, &OpenOptions::default()).await.expect("a store");
    let error = store.ready().await.expect_err("no TLS there");
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(cause.contains("TLS"), "{error}: {cause}");
}
