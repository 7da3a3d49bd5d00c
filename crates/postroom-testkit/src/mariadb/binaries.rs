//! Where MariaDB's programs are.

use anyhow::Context as _;
use std::path::PathBuf;

/// MariaDB's programs.
#[derive(Clone, Debug)]
pub struct MariaDbPrograms {
    /// The server.
    pub server: PathBuf,
    /// Makes a data folder.
    pub install: PathBuf,
}

/// The server and the program that makes its data folder, on `PATH` or where a distribution puts
/// what only administrators run.
///
/// # Errors
/// When MariaDB is not installed.
pub fn find_mariadb() -> anyhow::Result<MariaDbPrograms> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/usr/libexec"].map(PathBuf::from))
        .collect();
    let find = |name: &str| {
        folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()).context(
            "MariaDB is not installed: run `cargo xtask test`, which installs it, or install the \
             package `mariadb-server`, or set MARIADB_URL to a server that the tests may use",
        )
    };
    Ok(MariaDbPrograms { server: find("mariadbd")?, install: find("mariadb-install-db")? })
}
