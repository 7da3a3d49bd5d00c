//! Three MariaDB servers that Galera makes one database of.

use super::database::MariaDatabase;
use super::server::Server;
use crate::eventually::polled;
use crate::guarded::{apart, free_port};
use crate::programs::find_program;
use crate::skip::NotInstalled;
use crate::turn::ClusterTurn;
use anyhow::Context as _;
use sqlx::{Connection as _, MySqlConnection};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A node that joins gets a copy of everything first.
const START_LIMIT: Duration = Duration::from_secs(120);

const LIBRARY: &str = "/usr/lib/galera/libgalera_smm.so";

/// Where Galera's library is.
///
/// # Errors
/// When it is not installed, or what it copies data with is not.
pub fn find_galera() -> anyhow::Result<PathBuf> {
    find_program("rsync", "rsync")?;
    Some(PathBuf::from(LIBRARY)).filter(|library| library.is_file()).ok_or_else(|| {
        let problem = "Galera is not installed: `cargo xtask test` installs the package `galera-4`";
        NotInstalled(problem.to_owned()).into()
    })
}

/// A cluster of three nodes, all of which take writes. It ends with the value; one runs at a time.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<Arc<Server>>,
    _turn: ClusterTurn,
}

impl Galera {
    /// How many nodes it has.
    pub const NODES: usize = 3;

    /// Starts one, with these settings on every node; waits while another test runs a cluster.
    ///
    /// # Errors
    /// When Galera or MariaDB is not installed, or does not start.
    pub async fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let more: Vec<_> =
            settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let cluster = apart(move || {
            let library = find_galera()?;
            let turn = ClusterTurn::wait()?;
            let ports = (0..Self::NODES).map(|_| Ports::choose()).collect::<Result<Vec<_>, _>>()?;
            let mut nodes = Vec::new();
            for (number, own) in ports.iter().enumerate() {
                let mut settings = own.settings(&library, &ports, number);
                settings.extend(more.iter().cloned());
                // The others join the first.
                let first: &[&str] = if number == 0 { &["--wsrep-new-cluster"] } else { &[] };
                nodes.push(Arc::new(Server::create(&settings, first, START_LIMIT)?));
            }
            Ok(Self { nodes, _turn: turn })
        })
        .await?;
        for node in 0..Self::NODES {
            cluster.wait_until_synced(node).await?;
        }
        Ok(cluster)
    }

    /// Where a node listens.
    #[must_use]
    pub fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].address()
    }

    /// An empty database, made on the first node, which all have.
    ///
    /// # Errors
    /// When the node does not answer, or refuses.
    pub async fn try_database(&self) -> anyhow::Result<MariaDatabase> {
        MariaDatabase::create(&self.nodes[0].url()).await
    }

    /// Kills a node with SIGKILL.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&self, node: usize) -> anyhow::Result<()> {
        let server = Arc::clone(&self.nodes[node]);
        apart(move || server.stop()).await
    }

    /// Starts a node that was killed, and returns once it has what the others have.
    ///
    /// # Errors
    /// When it does not join.
    pub async fn restart(&self, node: usize) -> anyhow::Result<()> {
        let server = Arc::clone(&self.nodes[node]);
        apart(move || server.start(START_LIMIT)).await?;
        self.wait_until_synced(node).await
    }

    async fn wait_until_synced(&self, node: usize) -> anyhow::Result<()> {
        let url = self.nodes[node].url();
        let look = || async { (state(&url).await.ok()??.as_str() == "Synced").then_some(()) };
        polled(START_LIMIT, look)
            .await
            .with_context(|| format!("node {node} of Galera is not in sync after {START_LIMIT:?}"))
    }
}

/// What a node says of itself.
async fn state(url: &str) -> Result<Option<String>, sqlx::Error> {
    let mut connection = MySqlConnection::connect(url).await?;
    let status = "SHOW GLOBAL STATUS LIKE 'wsrep_local_state_comment'";
    let row: Option<(String, String)> =
        sqlx::query_as(status).fetch_optional(&mut connection).await?;
    Ok(row.map(|(_, value)| value))
}

/// What a node listens on for the others.
struct Ports {
    group: u16,
    /// Where it gets what it has missed.
    increments: u16,
    /// Where it gets a whole copy.
    copies: u16,
}

impl Ports {
    fn choose() -> anyhow::Result<Self> {
        Ok(Self { group: free_port()?, increments: free_port()?, copies: free_port()? })
    }

    fn settings(&self, library: &Path, all: &[Self], number: usize) -> Vec<(String, String)> {
        let group: Vec<String> = all.iter().map(|one| format!("127.0.0.1:{}", one.group)).collect();
        let Self { group: own, increments, copies } = self;
        let options = format!(
            "gmcast.listen_addr=tcp://127.0.0.1:{own};ist.recv_addr=127.0.0.1:{increments};\
             gcache.size=64M"
        );
        let settings = [
            ("wsrep-on", "ON".to_owned()),
            ("wsrep-provider", library.display().to_string()),
            ("wsrep-provider-options", options),
            ("wsrep-cluster-name", format!("postroom-{}", all[0].group)),
            ("wsrep-cluster-address", format!("gcomm://{}", group.join(","))),
            ("wsrep-node-name", format!("node-{number}")),
            ("wsrep-node-address", format!("127.0.0.1:{own}")),
            ("wsrep-sst-method", "rsync".to_owned()),
            ("wsrep-sst-receive-address", format!("127.0.0.1:{copies}")),
            ("binlog-format", "ROW".to_owned()),
            ("innodb-autoinc-lock-mode", "2".to_owned()),
        ];
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
