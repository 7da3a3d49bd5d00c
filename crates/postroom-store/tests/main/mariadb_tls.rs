//! TLS to MariaDB, and what is said of passwords when a connection fails.

use postroom_core::{Store, StoreError, StoreErrorKind};
use postroom_store::{OpenOptions, migrate, open};
use postroom_testkit::{Authority, MariaDatabase, MariaDb};
use sqlx::AssertSqlSafe;
use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;

const PASSWORD: &str = "p4ss-w0rd-nobody-sees";

/// A server whose certificate is made out to `localhost`, with a user who must use TLS.
struct Secured {
    _server: MariaDb,
    database: MariaDatabase,
    authority: Authority,
}

impl Secured {
    async fn start() -> Self {
        let authority = Authority::new();
        let files = authority.issue(&["localhost"], "mysql");
        let (certificate, key) = (files.certificate().display(), files.key().display());
        let settings = [("ssl-cert", &*certificate.to_string()), ("ssl-key", &*key.to_string())];
        let server = MariaDb::private(&settings).await.expect("a server with TLS");
        let database = server.database().await;
        let user = format!(
            "CREATE USER app IDENTIFIED BY '{PASSWORD}' REQUIRE SSL; \
             GRANT ALL ON {}.* TO app",
            database.name()
        );
        let mut connection = database.connection().await;
        sqlx::raw_sql(AssertSqlSafe(user)).execute(&mut connection).await.expect("a user");
        Self { _server: server, database, authority }
    }

    fn url(&self, host: &str, options: &str) -> String {
        let url = self.database.url().replace("root@", &format!("app:{PASSWORD}@"));
        format!("{}?{options}", url.replace("127.0.0.1", host))
    }
}

async fn ready(url: &str) -> Result<(), StoreError> {
    store(url).await?.ready().await
}

async fn store(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    open(url, &OpenOptions::default()).await
}

/// Everything that an error says, to whoever prints it in whatever way.
fn words(error: &StoreError) -> String {
    let mut words = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(words, " {error} {error:?}");
        cause = error.source();
    }
    words
}

#[tokio::test]
async fn a_certificate_is_checked_as_the_url_asks() {
    let secured = Secured::start().await;
    let trusted = secured.authority.file().display().to_string();
    let stranger = Authority::new();
    let other = stranger.file().display().to_string();

    let verified = secured.url("localhost", &format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={trusted}"));
    migrate(&verified).await.expect("the right authority and the right host");
    ready(&verified).await.expect("ready");
    let same_authority = secured.url("127.0.0.1", &format!("ssl-mode=VERIFY_CA&ssl-ca={trusted}"));
    ready(&same_authority).await.expect("the host does not count");

    for (url, reason) in [
        (
            secured.url("localhost", &format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={other}")),
            "invalid peer certificate",
        ),
        (secured.url("localhost", "ssl-mode=VERIFY_IDENTITY"), "invalid peer certificate"),
        (
            secured.url("127.0.0.1", &format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={trusted}")),
            "not valid for name",
        ),
        (
            secured.url("127.0.0.1", &format!("ssl-mode=VERIFY_CA&ssl-ca={other}")),
            "invalid peer certificate",
        ),
    ] {
        let refused = ready(&url).await.expect_err("must be refused");
        assert_eq!(refused.kind, StoreErrorKind::Refused, "{refused}");
        let text = refused.to_string();
        assert!(text.contains("the server's certificate is not accepted"), "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(!words(&refused).contains(PASSWORD));
    }

    let plain = secured.url("localhost", "ssl-mode=DISABLED");
    let refused = ready(&plain).await.expect_err("this user must use TLS");
    assert_eq!(refused.kind, StoreErrorKind::Refused, "{refused}");
    let missing = secured.url("localhost", "ssl-mode=VERIFY_CA&ssl-ca=/nowhere/ca.pem");
    let missing = ready(&missing).await.expect_err("there is no such file");
    assert!(missing.to_string().contains("a file that the database URL names"), "{missing}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let database = MariaDb::shared().await.database().await;
    for mode in ["REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"] {
        let refused = ready(&format!("{}?ssl-mode={mode}", database.url())).await;
        let refused = refused.expect_err("must be refused");
        assert_eq!(refused.kind, StoreErrorKind::Refused, "{refused}");
        assert!(refused.to_string().contains("TLS cannot be used"), "{refused}");
    }
}

#[tokio::test]
async fn a_password_is_in_no_error_and_no_debug_output() {
    let database = MariaDb::shared().await.database().await;
    let wrong = database.url().replace("root@", &format!("nobody:{PASSWORD}@"));
    let down = format!("mysql://app:{PASSWORD}@127.0.0.1:1/shop");
    for (url, kind) in [(&wrong, StoreErrorKind::Refused), (&down, StoreErrorKind::Unavailable)] {
        let error = ready(url).await.expect_err("must fail");
        assert_eq!(error.kind, kind, "{error}");
        assert!(!words(&error).contains(PASSWORD), "{}", words(&error));
    }
    let migrating = migrate(&wrong).await.expect_err("must fail");
    assert!(!words(&migrating).contains(PASSWORD), "{}", words(&migrating));
    for url in [
        format!("mysql://app:{PASSWORD}@db:port/shop"),
        format!("mysql://app:{PASSWORD}@db"),
        format!("mysql://app:{PASSWORD}@db/shop?ssl-mode=SOMETIMES"),
    ] {
        let Err(error) = store(&url).await else { panic!("must be refused") };
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        assert!(!words(&error).contains(PASSWORD), "{}", words(&error));
    }
    let options = OpenOptions::default();
    let store = postroom_store::mysql::MySqlStore::new(&down, &options).expect("a store");
    assert!(!format!("{store:?}").contains(PASSWORD));
}
