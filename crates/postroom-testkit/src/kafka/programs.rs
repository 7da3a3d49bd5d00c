//! What a private broker needs.

use super::server::JAVA;
use crate::guarded::Guarded;
use crate::packages::jars_of;
use crate::programs::find_program;
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const JARS: [&str; 2] = ["org.apache.kafka:kafka_2.13:4.3.0", "org.slf4j:slf4j-simple:1.7.36"];

/// Any 22 characters of base64 do.
const CLUSTER_ID: &str = "AAAAAAAAQAGAAAAAAAAAAQ";

/// The oldest Java that runs this Kafka.
const JAVA_MIN: u32 = 17;

/// The programs that start and read a private broker.
#[derive(Clone, Debug)]
pub struct KafkaPrograms {
    java: PathBuf,
}

/// Finds Java, Maven and kcat.
///
/// # Errors
/// When one of them is not installed.
pub fn find_kafka() -> anyhow::Result<KafkaPrograms> {
    find_program("mvn", "maven")?;
    find_program("kcat", "kcat")?;
    let java = find_program("java", "default-jre-headless")?;
    let output = Command::new(&java).arg("-version").output().context("running java")?;
    // `openjdk version "17.0.15" 2025-04-15`, on standard error.
    let said = String::from_utf8_lossy(&output.stderr);
    let version = said.split('"').nth(1).and_then(|version| version.split('.').next());
    let version = version.and_then(|version| version.parse::<u32>().ok());
    ensure!(version >= Some(JAVA_MIN), "Kafka needs Java {JAVA_MIN}, and this is {version:?}");
    Ok(KafkaPrograms { java })
}

impl KafkaPrograms {
    /// A command that runs one of Kafka's programs.
    pub(super) fn java(&self, options: &[&str], class: &str) -> anyhow::Result<Command> {
        let jars = jars_of(&JARS).context("Kafka's jars")?;
        let mut command = Command::new(&self.java);
        command.args(options).arg("-cp").arg(jars.join("*")).arg(class);
        Ok(command)
    }

    /// Makes a broker's data folder, as its settings say.
    pub(super) fn format(&self, guarded: &Guarded, properties: &Path) -> anyhow::Result<()> {
        let mut format = self.java(&JAVA, "kafka.tools.StorageTool")?;
        format.args(["format", "-t", CLUSTER_ID, "-c"]).arg(properties);
        guarded.prepare(&mut format)
    }
}
