//! Three brokers of which any may be killed.

use super::kcat;
use super::programs::{KafkaPrograms, find_kafka};
use super::server::{JAVA, KIND, START_LIMIT, bound, port};
use super::{KafkaRecord, topic};
use crate::guarded::{Guarded, apart};
use crate::turn::ClusterTurn;
use anyhow::Context as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// A cluster of three brokers, each a controller too. It ends with the value; one runs at a time.
///
/// A topic has three replicas, of which two must have a record before it is acknowledged.
#[derive(Debug)]
pub struct KafkaCluster {
    brokers: Vec<Arc<Broker>>,
    _turn: ClusterTurn,
}

#[derive(Debug)]
struct Broker {
    guarded: Guarded,
    programs: KafkaPrograms,
    /// Its id, from 1.
    id: usize,
    port: u16,
}

impl KafkaCluster {
    /// How many brokers it has.
    pub const BROKERS: usize = 3;

    /// Starts one; waits while another test runs a cluster.
    ///
    /// # Errors
    /// When it cannot be had, or does not start.
    pub async fn start() -> anyhow::Result<Self> {
        apart(|| {
            let programs = find_kafka()?;
            let turn = ClusterTurn::wait()?;
            let ports = Ports::choose()?;
            let mut brokers = Vec::new();
            for id in 1..=Self::BROKERS {
                let guarded = Guarded::new(KIND)?;
                let port = ports.clients[id - 1];
                let broker = Broker { guarded, programs: programs.clone(), id, port };
                broker.prepare(&ports)?;
                brokers.push(Arc::new(broker));
            }
            // Side by side: one alone is no majority, and is never ready.
            std::thread::scope(|scope| {
                let starts: Vec<_> =
                    brokers.iter().map(|broker| scope.spawn(|| broker.run())).collect();
                starts.into_iter().try_for_each(|start| {
                    start.join().map_err(|_| anyhow::anyhow!("starting Kafka panicked"))?
                })
            })?;
            Ok(Self { brokers, _turn: turn })
        })
        .await
    }

    /// What clients are told to connect to: all brokers, killed or not.
    #[must_use]
    pub fn brokers(&self) -> String {
        let brokers: Vec<String> = self.brokers.iter().map(|broker| broker.address()).collect();
        brokers.join(",")
    }

    /// Makes a topic of one partition.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn create_topic(&self, name: &str) -> anyhow::Result<()> {
        let settings = [("min.insync.replicas", "2")];
        topic::create(&self.brokers(), name, 1, Self::BROKERS, &settings).await
    }

    /// The broker that leads a topic's partition, by its place from 0.
    ///
    /// # Errors
    /// When nobody says.
    pub async fn leader(&self, topic: &str) -> anyhow::Result<usize> {
        let (brokers, topic) = (self.brokers(), topic.to_owned());
        let id = apart(move || kcat::leader(&brokers, &topic)).await?;
        self.brokers.iter().position(|broker| broker.id == id).context("a broker of ours")
    }

    /// Kills a broker with SIGKILL.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&self, broker: usize) -> anyhow::Result<()> {
        let broker = Arc::clone(&self.brokers[broker]);
        apart(move || broker.guarded.stop()).await
    }

    /// Everything in a topic, read by `kcat`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, topic: &str) -> anyhow::Result<Vec<KafkaRecord>> {
        let (brokers, topic) = (self.brokers(), topic.to_owned());
        apart(move || kcat::read(&brokers, &topic)).await
    }
}

impl Broker {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn properties_file(&self) -> PathBuf {
        self.guarded.folder().join("server.properties")
    }

    fn prepare(&self, ports: &Ports) -> anyhow::Result<()> {
        fs::write(self.properties_file(), self.properties(ports)).context("Kafka's settings")?;
        self.programs.format(&self.guarded, &self.properties_file())
    }

    fn run(&self) -> anyhow::Result<()> {
        let mut command = self.programs.java(&JAVA, "kafka.Kafka")?;
        command.arg(self.properties_file());
        self.guarded.start(&command, START_LIMIT, || kcat::answers(&self.address()))
    }

    fn properties(&self, ports: &Ports) -> String {
        let voters: Vec<String> = (1..=KafkaCluster::BROKERS)
            .zip(&ports.controllers)
            .map(|(id, port)| format!("{id}@127.0.0.1:{port}"))
            .collect();
        let (client, controller) = (self.port, ports.controllers[self.id - 1]);
        [
            "process.roles=broker,controller".to_owned(),
            format!("node.id={}", self.id),
            format!("controller.quorum.voters={}", voters.join(",")),
            "controller.listener.names=CONTROLLER".to_owned(),
            "inter.broker.listener.name=PLAIN".to_owned(),
            format!("listeners=PLAIN://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"),
            format!("advertised.listeners=PLAIN://127.0.0.1:{client}"),
            "listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned(),
            format!("log.dirs={}/data", self.guarded.folder().display()),
            "num.network.threads=1".to_owned(),
            "auto.create.topics.enable=false".to_owned(),
            // A broker that was killed is given up after this.
            "broker.session.timeout.ms=6000".to_owned(),
            "broker.heartbeat.interval.ms=1000".to_owned(),
            String::new(),
        ]
        .join("\n")
    }
}

/// Ports that are free now.
struct Ports {
    clients: Vec<u16>,
    controllers: Vec<u16>,
}

impl Ports {
    fn choose() -> anyhow::Result<Self> {
        // All are held until all are known, so that none comes twice.
        let free =
            (0..2 * KafkaCluster::BROKERS).map(|_| bound()).collect::<Result<Vec<_>, _>>()?;
        let mut clients = free.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let controllers = clients.split_off(KafkaCluster::BROKERS);
        Ok(Self { clients, controllers })
    }
}
