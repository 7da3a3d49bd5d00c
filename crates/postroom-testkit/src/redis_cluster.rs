//! A Redis Cluster for tests.

use crate::Redis;
use crate::eventually::within;
use crate::guarded::free_port;
use anyhow::{Context as _, ensure};
use std::process::Command;
use std::time::Duration;

/// A node that is silent for so long is replaced by its replica. Long enough that a client which only
/// tries again for a moment does not get over it.
const NODE_TIMEOUT_MS: &str = "5000";

/// Three primaries, and a replica of each; nothing on disk.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts six servers, and joins them. The first three are the primaries.
    ///
    /// # Errors
    /// When Redis is not installed, or the cluster does not come up.
    pub async fn start() -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let bus = free_port()?.to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let timeout = ["--cluster-node-timeout", NODE_TIMEOUT_MS];
            nodes.push(Redis::private(&[&settings[..], &timeout[..]].concat()).await?);
        }
        let cluster = Self { nodes };
        cluster.join().await?;
        Ok(cluster)
    }

    async fn join(&self) -> anyhow::Result<()> {
        let addresses = self.nodes.iter().map(|node| node.address().to_string());
        let mut command = Command::new("redis-cli");
        command.args(["--cluster", "create"]).args(addresses);
        command.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .context("redis-cli panicked")?
            .context("running redis-cli")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "redis-cli --cluster create: {said}");
        // Every node must have heard of every other and of its replica, or it would not vote.
        let is_whole = async || {
            for node in &self.nodes {
                let nodes = node.cli(&["CLUSTER", "NODES"]).await.ok()?.to_string();
                let info = node.cli(&["CLUSTER", "INFO"]).await.ok()?.to_string();
                let replicas = nodes.matches("slave").count();
                let is_up = info.contains("cluster_state:ok") && !nodes.contains("fail");
                if replicas < 3 || !is_up || nodes.contains("handshake") {
                    return None;
                }
            }
            Some(())
        };
        within(Duration::from_secs(60), is_whole).await.context("the cluster does not come up")
    }

    /// The nodes: the primaries, then their replicas.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Runs a command on the node that serves its key.
    ///
    /// # Errors
    /// When none of them answers.
    pub async fn read(&self, command: &[&str]) -> anyhow::Result<serde_json::Value> {
        let mut failure = anyhow::anyhow!("there is no node");
        for node in &self.nodes {
            match node.cli(&[&["-c"], command].concat()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}
