//! A private broker.

use super::kcat;
use super::programs::{KafkaPrograms, find_kafka};
use crate::Authority;
use crate::guarded::{Guarded, Kind};
use anyhow::Context as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// It may run as root, who alone may be able to read the jars in root's cache.
pub(super) const KIND: Kind =
    Kind { name: "Kafka", prefix: "postroom-kafka-", user: "root", crash: "KILL" };
pub(super) const START_LIMIT: Duration = Duration::from_secs(180);

/// As many proxies can stand before the broker.
const DOORS: usize = 12;
/// Ports can be taken by others between our look and the broker's start.
const TRIES: usize = 5;

/// Starts soon and stays small.
pub(super) const JAVA: [&str; 4] = [
    "-Xms128m",
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

#[derive(Debug)]
pub(super) struct Server {
    guarded: Guarded,
    programs: KafkaPrograms,
    ports: Ports,
    authority: Authority,
}

/// An address that the broker tells its clients, and where it really listens for them.
#[derive(Debug)]
pub(super) struct Door {
    /// Bound, so that nobody else takes the port.
    pub(super) outside: TcpListener,
    pub(super) inside: SocketAddr,
}

#[derive(Debug)]
struct Ports {
    plain: u16,
    secure: u16,
    controller: u16,
    /// Of each door: outside, inside.
    doors: Vec<(u16, u16)>,
}

impl Server {
    pub(super) fn start() -> anyhow::Result<(Self, Vec<Door>)> {
        let programs = find_kafka()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let outsides: Vec<TcpListener> =
                (0..DOORS).map(|_| bound()).collect::<Result<_, _>>()?;
            let ports = Ports::choose(&outsides)?;
            let insides: Vec<u16> = ports.doors.iter().map(|(_, inside)| *inside).collect();
            let guarded = Guarded::new(KIND)?;
            let server =
                Self { guarded, programs: programs.clone(), ports, authority: Authority::new() };
            server.prepare()?;
            match server.run() {
                Ok(()) => {
                    let doors = outsides.into_iter().zip(insides).map(|(outside, inside)| Door {
                        outside,
                        inside: (Ipv4Addr::LOCALHOST, inside).into(),
                    });
                    return Ok((server, doors.collect()));
                }
                Err(_) if tries < TRIES && server.guarded.log_end().contains("BindException") => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.plain).into()
    }

    pub(super) fn secure_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.secure).into()
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) fn kill(&self) -> anyhow::Result<()> {
        self.guarded.stop()
    }

    /// Starts the broker. It is ready when it answers a question, not when the port opens.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut command = self.programs.java(&JAVA, "kafka.Kafka")?;
        command.arg(self.properties_file());
        let brokers = self.address().to_string();
        self.guarded.start(&command, START_LIMIT, || kcat::answers(&brokers))
    }

    fn properties_file(&self) -> PathBuf {
        self.guarded.folder().join("server.properties")
    }

    fn prepare(&self) -> anyhow::Result<()> {
        let files = self.authority.issue(&["localhost", "127.0.0.1"], KIND.user);
        let read = |path| fs::read_to_string(path).context("the broker's certificate");
        let both = read(files.key())? + &read(files.certificate())?;
        fs::write(self.guarded.folder().join("broker.pem"), both).context("its certificate")?;
        fs::write(self.properties_file(), self.properties()).context("Kafka's settings")?;
        self.programs.format(&self.guarded, &self.properties_file())
    }

    fn properties(&self) -> String {
        let Ports { plain, secure, controller, doors } = &self.ports;
        let mut listeners = vec![
            format!("PLAIN://127.0.0.1:{plain}"),
            format!("SECURE://127.0.0.1:{secure}"),
            format!("CONTROLLER://127.0.0.1:{controller}"),
        ];
        let mut advertised = vec![listeners[0].clone(), listeners[1].clone()];
        let mut protocols = "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL".to_owned();
        for (number, (outside, inside)) in doors.iter().enumerate() {
            listeners.push(format!("DOOR{number}://127.0.0.1:{inside}"));
            advertised.push(format!("DOOR{number}://127.0.0.1:{outside}"));
            protocols.push_str(&format!(",DOOR{number}:PLAINTEXT"));
        }
        let folder = self.guarded.folder().display();
        let login = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        [
            "process.roles=broker,controller".to_owned(),
            "node.id=1".to_owned(),
            format!("controller.quorum.voters=1@127.0.0.1:{controller}"),
            "controller.listener.names=CONTROLLER".to_owned(),
            "inter.broker.listener.name=PLAIN".to_owned(),
            format!("listeners={}", listeners.join(",")),
            format!("advertised.listeners={}", advertised.join(",")),
            format!("listener.security.protocol.map={protocols}"),
            format!("log.dirs={folder}/data"),
            // Each listener has threads of its own.
            "num.network.threads=1".to_owned(),
            "offsets.topic.replication.factor=1".to_owned(),
            "transaction.state.log.replication.factor=1".to_owned(),
            "transaction.state.log.min.isr=1".to_owned(),
            "share.coordinator.state.topic.replication.factor=1".to_owned(),
            "share.coordinator.state.topic.min.isr=1".to_owned(),
            "group.initial.rebalance.delay.ms=0".to_owned(),
            "auto.create.topics.enable=false".to_owned(),
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
                .to_owned(),
            "super.users=User:ANONYMOUS;User:relay".to_owned(),
            "sasl.enabled.mechanisms=PLAIN".to_owned(),
            format!(
                "listener.name.secure.plain.sasl.jaas.config={login} user_relay=\"hunter2\" \
                 user_stranger=\"hunter2\";"
            ),
            "listener.name.secure.ssl.keystore.type=PEM".to_owned(),
            format!("listener.name.secure.ssl.keystore.location={folder}/broker.pem"),
            String::new(),
        ]
        .join("\n")
    }
}

impl Ports {
    /// Ports that are free now. Those of the doors' outsides are held already.
    fn choose(outsides: &[TcpListener]) -> anyhow::Result<Self> {
        let free: Vec<TcpListener> =
            (0..outsides.len() + 3).map(|_| bound()).collect::<Result<_, _>>()?;
        let free: Vec<u16> = free.iter().map(port).collect::<Result<_, _>>()?;
        let outsides: Vec<u16> = outsides.iter().map(port).collect::<Result<_, _>>()?;
        let [plain, secure, controller, insides @ ..] = &free[..] else {
            anyhow::bail!("three ports at least")
        };
        Ok(Self {
            plain: *plain,
            secure: *secure,
            controller: *controller,
            doors: outsides.into_iter().zip(insides.iter().copied()).collect(),
        })
    }
}

pub(super) fn bound() -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")
}

pub(super) fn port(listener: &TcpListener) -> anyhow::Result<u16> {
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
