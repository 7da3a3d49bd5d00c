//! The servers that a client is tried with: a plain one, one with TLS and users, and one that is
//! stopped and started again.

use postroom_eventlog::server::{Server, ServerSettings, Tls, Users};
use postroom_eventlog::{EventLog, Settings};
use postroom_testkit::Authority;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const USER: &str = "admin";
const PASSWORD: &str = "changeit";

/// Servers of this process, gone with the value.
pub(crate) struct Servers {
    plain: Running,
    secure: Running,
    /// `None` while it is stopped.
    restarted: Option<Running>,
    restarted_at: SocketAddr,
    folder: TempDir,
    authority: Authority,
}

/// A log, and its server in a task.
struct Running {
    log: EventLog,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(folder: &Path, settings: ServerSettings) -> Self {
        let log = EventLog::open(folder, Settings::default()).unwrap();
        let server = Server::bind(log.clone(), settings).unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            // An error means that the value is gone, which is an end as well.
            let stop = async { drop(stopped.await) };
            server.serve(stop).await.unwrap();
        });
        Self { log, address, stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
        self.log.close().await;
    }
}

fn at(port: u16) -> ServerSettings {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    ServerSettings { listen, ..ServerSettings::default() }
}

impl Servers {
    /// Starts all of them.
    pub(crate) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new();
        let files = authority.issue(&["localhost"], "root");
        let read = |path: &Path| std::fs::read(path).unwrap();
        let secure = ServerSettings {
            tls: Some(Tls { certificate: read(files.certificate()), key: read(files.key()) }),
            users: Some(Users::parse(&format!("{USER}:{PASSWORD}\n")).unwrap()),
            ..at(0)
        };
        let restarted = Running::start(&folder.path().join("restarted"), at(0));
        Self {
            plain: Running::start(&folder.path().join("plain"), at(0)),
            secure: Running::start(&folder.path().join("secure"), secure),
            restarted_at: restarted.address,
            restarted: Some(restarted),
            folder,
            authority,
        }
    }

    /// Where the plain one is.
    pub(crate) fn plain(&self) -> SocketAddr {
        self.plain.address
    }

    /// Where the one with TLS and users is, by the name in its certificate.
    pub(crate) fn secure(&self) -> String {
        format!("localhost:{}", self.secure.address.port())
    }

    /// Where the one is that can be stopped.
    pub(crate) fn restarted(&self) -> SocketAddr {
        self.restarted_at
    }

    /// The certificate to trust.
    pub(crate) fn authority(&self) -> PathBuf {
        self.authority.file()
    }

    /// The one user.
    pub(crate) fn user(&self) -> &'static str {
        USER
    }

    /// The user's password.
    pub(crate) fn password(&self) -> &'static str {
        PASSWORD
    }

    /// All that a program in another language has to know.
    pub(crate) fn options(&self) -> Value {
        json!({
            "plain": self.plain(),
            "secure": self.secure(),
            "restarted": self.restarted(),
            "authority": self.authority(),
            "user": USER,
            "password": PASSWORD,
        })
    }

    /// Stops the one that can be stopped, and closes its log.
    pub(crate) async fn stop(&mut self) {
        self.restarted.take().unwrap().stop().await;
    }

    /// Starts it again, at the same address and with the same folder.
    pub(crate) async fn start_again(&mut self) {
        let folder = self.folder.path().join("restarted");
        self.restarted = Some(Running::start(&folder, at(self.restarted_at.port())));
    }
}
