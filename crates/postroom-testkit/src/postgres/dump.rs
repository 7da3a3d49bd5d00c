//! Dumps of a test's database, by PostgreSQL's own programs.

use super::{TestDatabase, find_postgres};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A dump of a database, gone with the value.
#[derive(Debug)]
pub struct Dump {
    _folder: TempDir,
    file: PathBuf,
}

impl Dump {
    /// Runs `pg_dump` with these arguments; `None` where it is missing, or older than the server.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn of(database: &TestDatabase, arguments: &[&str]) -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("dump");
        let arguments: Vec<&str> = arguments
            .iter()
            .copied()
            .chain(["--format=custom", "--file", file.to_str()?, database.url()])
            .collect();
        run("pg_dump", &arguments, "").then_some(Self { _folder: folder, file })
    }

    /// Restores it into a database, in sessions with these settings (`PGOPTIONS`).
    ///
    /// # Panics
    /// When that fails.
    pub fn restore(&self, into: &TestDatabase, settings: &str) {
        let file = self.file.to_str().expect("a path");
        let arguments = ["--exit-on-error", "--no-owner", "--dbname", into.url(), file];
        assert!(run("pg_restore", &arguments, settings), "pg_restore is beside pg_dump");
    }
}

/// Runs one of PostgreSQL's programs; false where it is missing, or older than the server.
fn run(program: &str, arguments: &[&str], settings: &str) -> bool {
    let program = find_postgres().map_or_else(|_| program.into(), |folder| folder.join(program));
    let ran = Command::new(&program).args(arguments).env("PGOPTIONS", settings).output();
    let Ok(ran) = ran else { return false };
    let said = String::from_utf8_lossy(&ran.stderr);
    if said.contains("server version mismatch") {
        return false;
    }
    assert!(ran.status.success(), "{}: {said}", program.display());
    true
}
