//! System packages that the tests need: found, or installed by name.

use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use nix::unistd::Uid;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// A Debian package, and how to see that what it brings is there, from wherever it came.
struct Package {
    name: &'static str,
    is_there: fn() -> bool,
}

const PACKAGES: &[Package] = &[
    Package { name: "postgresql", is_there: has_postgres },
    Package { name: "mariadb-server", is_there: has_mariadb },
    // Servers that a variable names come without their clients.
    Package { name: "postgresql-client", is_there: || answers("psql", &["--version"]) },
    Package { name: "mariadb-client", is_there: || answers("mariadb", &["--version"]) },
    Package { name: "pgbouncer", is_there: || postroom_testkit::find_pgbouncer().is_ok() },
    // The sink for Kafka links librdkafka, which is built from its source.
    Package { name: "libssl-dev", is_there: || answers("pkg-config", &["--exists", "openssl"]) },
    Package { name: "make", is_there: || answers("make", &["--version"]) },
    Package { name: "g++", is_there: || answers("c++", &["--version"]) },
    Package { name: "pkg-config", is_there: || answers("pkg-config", &["--version"]) },
    // Kafka's own broker, and an independent client.
    Package { name: "default-jre-headless", is_there: has_java },
    Package { name: "maven", is_there: || answers("mvn", &["--version"]) },
    Package { name: "kcat", is_there: || answers("kcat", &["-V"]) },
    Package { name: "mosquitto", is_there: || postroom_testkit::find_mosquitto().is_ok() },
    Package { name: "mosquitto-clients", is_there: has_mosquitto_sub },
    Package { name: "nats-server", is_there: || postroom_testkit::find_nats().is_ok() },
    Package { name: "rabbitmq-server", is_there: || postroom_testkit::find_rabbitmq().is_ok() },
    Package { name: "redis-server", is_there: || postroom_testkit::find_redis().is_ok() },
    Package { name: "redis-tools", is_there: || answers("redis-cli", &["--version"]) },
    Package { name: "prometheus", is_there: || postroom_testkit::find_promtool().is_ok() },
    Package { name: "openssl", is_there: || answers("openssl", &["version"]) },
    Package { name: "python3-pika", is_there: has_pika },
    Package { name: "faketime", is_there: || answers("faketime", &["--version"]) },
    Package { name: "python3-venv", is_there: has_python },
    Package { name: "nodejs", is_there: || answers("node", &["--version"]) },
    Package { name: "npm", is_there: || answers("npm", &["--version"]) },
];

/// The names of the packages that are missing.
pub(crate) fn missing() -> Vec<&'static str> {
    PACKAGES.iter().filter(|package| !(package.is_there)()).map(|package| package.name).collect()
}

/// Installs packages by name, as root or through sudo.
pub(crate) fn install(tree: &Tree, names: &[&str]) -> anyhow::Result<()> {
    let by_hand = || format!("install by hand what stands for these here: {}", names.join(" "));
    ensure!(answers("apt-get", &["--version"]), "there is no apt-get: {}", by_hand());
    let prefix: &[&str] = if Uid::effective().is_root() { &[] } else { &["sudo", "-n"] };
    ensure!(
        prefix.is_empty() || answers("sudo", &["-n", "true"]),
        "installing packages needs root, or sudo without a password: {}",
        by_hand()
    );
    apt(tree, prefix, &["update", "-qq"])?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(names);
    apt(tree, prefix, &arguments).with_context(by_hand)
}

fn apt(tree: &Tree, prefix: &[&str], arguments: &[&str]) -> anyhow::Result<()> {
    let line = [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], arguments].concat();
    let mut command = tree.command(line[0]);
    let output = command.args(&line[1..]).stdin(Stdio::null()).output().context("apt-get")?;
    ensure!(
        output.status.success(),
        "`{}` failed ({})\n{}",
        line.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn has_postgres() -> bool {
    std::env::var_os("DATABASE_URL").is_some() || postroom_testkit::find_postgres().is_ok()
}

fn has_mariadb() -> bool {
    std::env::var_os("MARIADB_URL").is_some() || postroom_testkit::find_mariadb().is_ok()
}

/// Debian splits the standard library's `ensurepip`, which `venv` needs, into a package.
fn has_python() -> bool {
    answers("python3", &["-c", "import ensurepip, venv"])
}

/// Without a host to connect to, it says how it is used.
fn has_mosquitto_sub() -> bool {
    Command::new("mosquitto_sub").arg("--help").output().is_ok()
}

/// A private broker is not needed when there is one.
fn has_java() -> bool {
    std::env::var_os("KAFKA_BROKERS").is_some() || answers("java", &["-version"])
}

fn has_pika() -> bool {
    answers(postroom_testkit::system_python(), &["-c", "import pika"])
}

fn answers(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
