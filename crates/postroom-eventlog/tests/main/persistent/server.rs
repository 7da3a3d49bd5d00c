//! A log in a folder of its own, served in this process.

use super::client::Client;
use bytes::Bytes;
use postroom_eventlog::persistent::Service;
use postroom_eventlog::proto::persistent_subscriptions::persistent_subscriptions_client::PersistentSubscriptionsClient;
use postroom_eventlog::proto::persistent_subscriptions::persistent_subscriptions_server::PersistentSubscriptionsServer;
use postroom_eventlog::{EventLog, ExpectedRevision, NewEvent, Settings};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Server as Transport;
use tonic::transport::server::TcpIncoming;

/// How long a test waits for what should come at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Server {
    folder: TempDir,
    pub(super) log: EventLog,
    service: Service,
    pub(super) address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::open(tempfile::tempdir().unwrap()).await
    }

    async fn open(folder: TempDir) -> Self {
        let log = EventLog::open(folder.path(), Settings::default()).unwrap();
        let service = Service::new(log.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = Transport::builder()
            .add_service(PersistentSubscriptionsServer::new(service.clone()))
            .serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
                let _ = stopped.await;
            });
        let task = tokio::spawn(async { serve.await.unwrap() });
        Self { folder, log, service, address, stop, task }
    }

    /// Stops cleanly and starts again.
    pub(super) async fn restart(self) -> Self {
        self.service.close().await;
        self.stop_log().await
    }

    /// Stops without a word to the groups, as when the process is killed, and starts again.
    pub(super) async fn kill(self) -> Self {
        self.stop_log().await
    }

    async fn stop_log(self) -> Self {
        let Self { folder, log, service, stop, task, .. } = self;
        log.close().await;
        // Nothing of it is at work any more when it is opened again.
        service.close().await;
        drop(stop);
        task.await.unwrap();
        drop((log, service));
        Self::open(folder).await
    }

    pub(super) async fn close_service(&self) {
        self.service.close().await;
    }

    pub(super) async fn client(&self) -> Client {
        let client = PersistentSubscriptionsClient::connect(self.address.clone()).await.unwrap();
        Client { client }
    }

    /// Appends events whose data is their number, from `first` on.
    pub(super) async fn append(&self, stream: &str, numbers: std::ops::Range<u64>) {
        let event = |number: u64| NewEvent::json("counted", Bytes::from(number.to_string()));
        let events = numbers.map(event).collect();
        self.log.append(stream, ExpectedRevision::Any, events).await.unwrap();
    }
}
