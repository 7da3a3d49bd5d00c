//! RabbitMQ for tests.

use crate::guarded::{Guarded, Kind, NotStarted, apart, free_port, on_free_port, shared};
use crate::programs::find_program;
use crate::skip::NotInstalled;
use anyhow::Context as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The wrapper below takes SIGTERM, and kills what RabbitMQ consists of.
const KIND: Kind =
    Kind { name: "RabbitMQ", prefix: "postroom-rabbitmq-", user: "nobody", crash: "TERM" };
const START_LIMIT: Duration = Duration::from_secs(60);

/// Debian's `rabbitmq-server` on `PATH` changes the user; this is what it runs.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// The broker is a script, a virtual machine and a daemon that tells nodes their ports. Each is
/// ended here, since none of them ends with the others.
const WRAPPER: &str = r#"
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & names=$!
"$1" & server=$!
trap 'kill -9 "$(cat "$RABBITMQ_PID_FILE")" "$server" "$names"' TERM
wait "$server"
kill -9 "$names"
"#;

/// Where RabbitMQ is.
///
/// # Errors
/// When it is not installed.
pub fn find_rabbitmq() -> anyhow::Result<PathBuf> {
    find_program("epmd", "rabbitmq-server")?;
    Some(PathBuf::from(SCRIPT)).filter(|script| script.is_file()).ok_or_else(|| {
        let problem =
            "RabbitMQ is not installed: `cargo xtask test` installs the package `rabbitmq-server`";
        NotInstalled(problem.to_owned()).into()
    })
}

/// A private RabbitMQ that ends with the process that started it, or with the value.
///
/// Messages may have 1 MiB. The user `guest` may use everything but what is called `forbidden…`.
#[derive(Debug)]
pub struct RabbitMq {
    guarded: Arc<Guarded>,
    port: u16,
}

impl RabbitMq {
    /// The broker that all tests of this process share.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it is not installed.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<RabbitMq, NotStarted>> = OnceLock::new();
        shared(&SHARED, || Self::start("")).await
    }

    /// A broker of its own, with these lines in its configuration.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn private(settings: &str) -> anyhow::Result<Self> {
        let settings = settings.to_owned();
        apart(move || Self::start(&settings)).await
    }

    fn start(more: &str) -> anyhow::Result<Self> {
        let script = find_rabbitmq()?;
        let guarded = Guarded::new(KIND)?;
        let folder = guarded.folder().to_owned();
        fs::write(folder.join("enabled_plugins"), "[].\n").context("RabbitMQ's plugins")?;
        let port = on_free_port(
            |port| {
                let settings = format!(
                    "listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\n\
                     max_message_size = 1048576\ndefault_permissions.configure = .*\n\
                     default_permissions.read = ^(?!forbidden).*\n\
                     default_permissions.write = ^(?!forbidden).*\n{more}"
                );
                fs::write(folder.join("rabbitmq.conf"), settings).context("RabbitMQ's settings")?;
                let mut command = Command::new("env");
                let here = folder.display();
                command.args([
                    format!("HOME={here}"),
                    format!("RABBITMQ_NODENAME=postroom{port}@localhost"),
                    format!("RABBITMQ_MNESIA_BASE={here}/mnesia"),
                    format!("RABBITMQ_LOG_BASE={here}/logs"),
                    format!("RABBITMQ_CONFIG_FILE={here}/rabbitmq.conf"),
                    format!("RABBITMQ_ENABLED_PLUGINS_FILE={here}/enabled_plugins"),
                    format!("RABBITMQ_PID_FILE={here}/pid"),
                    "RABBITMQ_CONF_ENV_FILE=/dev/null".to_owned(),
                    format!("RABBITMQ_DIST_PORT={}", free_port()?),
                    format!("ERL_EPMD_PORT={}", free_port()?),
                    "ERL_EPMD_ADDRESS=127.0.0.1".to_owned(),
                    "LANG=C.UTF-8".to_owned(),
                ]);
                command.args(["sh", "-c", WRAPPER, "postroom-rabbitmq"]).arg(&script);
                guarded.start(&command, START_LIMIT, || greets(port))
            },
            || guarded.log_end().contains("eaddrinuse"),
        )?;
        Ok(Self { guarded: Arc::new(guarded), port })
    }

    /// Kills the broker, and returns once it is gone.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn crash(&self) -> anyhow::Result<()> {
        let guarded = Arc::clone(&self.guarded);
        apart(move || guarded.stop()).await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

/// A broker that is ready answers the protocol's greeting with a frame.
fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut frame = [0; 1];
    stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok()
        && stream.read_exact(&mut frame).is_ok()
        && frame == [1]
}
