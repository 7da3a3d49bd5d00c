//! A log that is served for the time of a test.

use postroom_eventlog::server::{Server, ServerSettings};
use postroom_eventlog::{EventLog, Settings};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The longest that a test waits for something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A served log in a folder of its own.
pub(crate) struct Served {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) log: EventLog,
    pub(crate) address: SocketAddr,
    pub(crate) connection_string: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// Settings for a port that is free.
pub(crate) fn settings() -> ServerSettings {
    ServerSettings { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..Default::default() }
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::start_with(settings())
    }

    pub(crate) fn start_with(settings: ServerSettings) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings)
    }

    pub(crate) fn start_in(folder: tempfile::TempDir, settings: ServerSettings) -> Self {
        let log = EventLog::open(folder.path(), Settings::default()).unwrap();
        let server = Server::bind(log.clone(), settings).unwrap();
        let (address, connection_string) = (server.address(), server.connection_string());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server.serve(stopped).await.unwrap();
        });
        Self { folder, log, address, connection_string, stop, serving }
    }

    /// Stops the server and closes the log. Gives the folder, and how long the server took.
    pub(crate) async fn stop(self) -> (tempfile::TempDir, Duration) {
        let start = Instant::now();
        let _ = self.stop.send(());
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
        let time = start.elapsed();
        self.log.close().await;
        (self.folder, time)
    }

    /// A channel of the generated clients.
    pub(crate) async fn channel(&self) -> tonic::transport::Channel {
        let uri = format!("http://{}", self.address);
        tonic::transport::Endpoint::from_shared(uri).unwrap().connect().await.unwrap()
    }
}
