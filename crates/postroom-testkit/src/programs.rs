//! Where programs are.

use crate::skip::NotInstalled;
use std::path::PathBuf;

/// A program on `PATH`, or where Debian puts what only root's `PATH` leads to.
pub(crate) fn find_program(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file()).ok_or_else(|| {
        let problem = format!(
            "{program} is not installed: `cargo xtask test` installs the package `{package}`"
        );
        NotInstalled(problem).into()
    })
}

/// Where Prometheus' own tool is, which checks what is served to it.
///
/// # Errors
/// When it is not installed.
pub fn find_promtool() -> anyhow::Result<PathBuf> {
    find_program("promtool", "prometheus")
}

/// The interpreter that Debian's Python packages are installed for. Another one on `PATH` does not
/// have them.
#[must_use]
pub fn system_python() -> PathBuf {
    let debian = PathBuf::from("/usr/bin/python3");
    if debian.is_file() { debian } else { PathBuf::from("python3") }
}
