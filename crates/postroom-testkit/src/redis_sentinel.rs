//! A Redis Sentinel for tests.

use crate::guarded::{Guarded, apart, on_free_port};
use crate::redis::{KIND, START_LIMIT, answers, find_redis};
use anyhow::Context as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// A Sentinel that watches over one primary, and decides alone when it is down.
#[derive(Debug)]
pub struct RedisSentinel {
    _guarded: Guarded,
    port: u16,
}

impl RedisSentinel {
    /// Watches over the server at this address under this name. `password` is what the Sentinel
    /// and its servers are logged in with.
    ///
    /// # Errors
    /// When Redis is not installed, or the Sentinel does not start.
    pub async fn start(
        name: &str,
        primary: SocketAddr,
        password: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut settings = format!(
            "bind 127.0.0.1\nsentinel monitor {name} {} {} 1\n\
             sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 3000\n",
            primary.ip(),
            primary.port()
        );
        if let Some(password) = password {
            settings.push_str(&format!(
                "requirepass {password}\nsentinel sentinel-pass {password}\n\
                 sentinel auth-pass {name} {password}\n"
            ));
        }
        apart(move || Self::run(&settings)).await
    }

    fn run(settings: &str) -> anyhow::Result<Self> {
        let program = find_redis()?;
        let guarded = Guarded::new(KIND)?;
        // It keeps what it learns in this file, and does not run as who made it.
        let file = guarded.folder().join("sentinel.conf");
        let port = on_free_port(
            |port| {
                let folder = guarded.folder().display();
                let settings = format!("port {port}\ndir {folder}\n{settings}");
                fs::write(&file, settings).context("the settings of a Sentinel")?;
                let writable = fs::Permissions::from_mode(0o666);
                fs::set_permissions(&file, writable).context("the settings of a Sentinel")?;
                let mut command = Command::new(&program);
                command.arg(&file).arg("--sentinel");
                guarded.start(&command, START_LIMIT, || answers(port))
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        Ok(Self { _guarded: guarded, port })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}
