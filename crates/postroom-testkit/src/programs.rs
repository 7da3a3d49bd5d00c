//! Where programs are.

use anyhow::Context as _;
use std::path::PathBuf;

/// A program on `PATH`, or where Debian puts what only root's `PATH` leads to.
pub(crate) fn find_program(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file()).with_context(|| {
        format!("{program} is not installed: `cargo xtask test` installs the package `{package}`")
    })
}

/// The interpreter that Debian's Python packages are installed for. Another one on `PATH` does not
/// have them.
#[must_use]
pub fn system_python() -> PathBuf {
    let debian = PathBuf::from("/usr/bin/python3");
    if debian.is_file() { debian } else { PathBuf::from("python3") }
}
