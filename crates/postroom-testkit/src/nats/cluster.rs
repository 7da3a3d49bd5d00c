//! Three NATS servers that keep streams together.

use super::{Nats, START_LIMIT, find_nats};
use crate::guarded::{apart, free_port};
use crate::turn::ClusterTurn;
use anyhow::ensure;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What every server writes into its log once the cluster has a leader, which answers questions
/// about streams: before, nobody does.
const HAS_LEADER: &str = "metadata leader";

/// A cluster of three servers with JetStream, called `node-0` to `node-2`. It ends with the value;
/// one runs at a time.
#[derive(Debug)]
pub struct NatsCluster {
    nodes: Vec<Nats>,
    _turn: ClusterTurn,
}

impl NatsCluster {
    /// How many servers it has.
    pub const NODES: usize = 3;

    /// Starts one, and returns once its servers have found each other; waits while another test
    /// runs a cluster.
    ///
    /// # Errors
    /// When NATS is not installed, or does not start.
    pub async fn start() -> anyhow::Result<Self> {
        apart(|| {
            find_nats()?;
            let turn = ClusterTurn::wait()?;
            let ports = (0..Self::NODES).map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
            let nodes = (0..Self::NODES)
                .map(|number| Nats::start(&settings(number, &ports)))
                .collect::<Result<Vec<_>, _>>()?;
            let end = Instant::now() + START_LIMIT;
            while !nodes.iter().all(|node| node.guarded.log_end().contains(HAS_LEADER)) {
                ensure!(Instant::now() < end, "NATS servers chose no leader in {START_LIMIT:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(Self { nodes, _turn: turn })
        })
        .await
    }

    /// Where a server listens.
    #[must_use]
    pub fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].address()
    }

    /// The server of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        (0..Self::NODES).find(|node| name_of(*node) == name)
    }

    /// Kills a server with SIGKILL.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].crash().await
    }
}

fn name_of(node: usize) -> String {
    format!("node-{node}")
}

fn settings(node: usize, ports: &[u16]) -> String {
    let routes: Vec<String> =
        ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
    format!(
        "server_name: \"{}\"\n\
         cluster {{ name: \"postroom\", listen: \"127.0.0.1:{}\", routes: [{}] }}\n",
        name_of(node),
        ports[node],
        routes.join(", ")
    )
}
