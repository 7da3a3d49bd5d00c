//! Where PostgreSQL's programs are.

use anyhow::bail;
use std::path::{Path, PathBuf};

/// The folder that holds `initdb` and `postgres`: the newest of the distribution's versioned
/// folders, else the first on `PATH` that has both.
///
/// The versioned folders come first since what is on `PATH` can be a wrapper that switches users
/// or clusters.
///
/// # Errors
/// When PostgreSQL is not installed.
pub fn find_postgres() -> anyhow::Result<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| has_server(folder))
        .collect();
    versions.sort();
    if let Some((_, folder)) = versions.pop() {
        return Ok(folder);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&path).find(|folder| has_server(folder)) {
        return Ok(folder);
    }
    bail!(
        "PostgreSQL is not installed: run `cargo xtask test`, which installs it, or install the \
         package `postgresql`, or set DATABASE_URL to a server that the tests may use"
    )
}

fn has_server(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("postgres").is_file()
}
