//! Pub/Sub for tests: the emulator that comes with Google's command-line tools.

use crate::guarded::{Guarded, Kind, on_free_port, shared_or_reason};
use crate::programs::find_program;
use anyhow::Context as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const KIND: Kind =
    Kind { name: "Pub/Sub", prefix: "postroom-pubsub-", user: "nobody", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(60);

/// An emulator: the one that `PUBSUB_EMULATOR_HOST` names, or a private one that ends with the
/// process that started it.
#[derive(Debug)]
pub struct PubSub {
    _guarded: Option<Guarded>,
    address: SocketAddr,
}

impl PubSub {
    /// The emulator that all tests of this process share.
    ///
    /// # Errors
    /// When it cannot be had, for a skip.
    pub async fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Result<PubSub, String>> = OnceLock::new();
        shared_or_reason(&SHARED, Self::start).await.map_err(str::to_owned)
    }

    fn start() -> anyhow::Result<Self> {
        if let Ok(host) = std::env::var("PUBSUB_EMULATOR_HOST") {
            let mut addresses = host.to_socket_addrs().context("PUBSUB_EMULATOR_HOST")?;
            let address = addresses.next().context("PUBSUB_EMULATOR_HOST has no address")?;
            return Ok(Self { _guarded: None, address });
        }
        let (java, jar) = (find_program("java", "default-jre-headless")?, find_jar()?);
        let guarded = Guarded::new(KIND)?;
        let port = on_free_port(
            |port| {
                let mut command = Command::new(&java);
                command.args(["-XX:TieredStopAtLevel=1", "-jar"]).arg(&jar);
                command.args(["--host=127.0.0.1", &format!("--port={port}")]);
                let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
                guarded.start(&command, START_LIMIT, listens)
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        Ok(Self { _guarded: Some(guarded), address: (Ipv4Addr::LOCALHOST, port).into() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Where Google's command-line tools have the emulator, if they are installed with it.
fn find_jar() -> anyhow::Result<PathBuf> {
    let missing = "Google's Pub/Sub emulator is not installed: it comes with the Google Cloud CLI \
                   as its component pubsub-emulator";
    let program = find_program("gcloud", "google-cloud-cli").ok().context(missing)?;
    let program = program.canonicalize().context("following the link to gcloud")?;
    let folder = program.ancestors().nth(2).context(missing)?;
    let folder = folder.join("platform/pubsub-emulator/lib");
    let files = fs::read_dir(folder).ok().context(missing)?.filter_map(Result::ok);
    let is_jar = |name: &str| name.starts_with("cloud-pubsub-emulator-") && name.ends_with(".jar");
    let mut jars = files.filter(|file| file.file_name().to_str().is_some_and(is_jar));
    Ok(jars.next().context(missing)?.path())
}
