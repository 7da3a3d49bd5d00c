//! Where things are: the repository, what cargo built, and what is kept between runs.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders that a run works with.
pub(crate) struct Tree {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Where cargo puts the programs it builds.
    pub(crate) binaries: PathBuf,
    /// What is fetched once and kept, outside the repository.
    pub(crate) cache: PathBuf,
}

impl Tree {
    /// Finds the folders.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .context("CARGO_MANIFEST_DIR is not set: start this program as `cargo xtask`")?;
        let root = Path::new(&manifest).parent().context("xtask lies in the repository")?;
        let program = std::env::current_exe().context("the path of this program")?;
        let binaries = program.parent().context("the folder of this program")?;
        Ok(Self {
            root: root.to_owned(),
            binaries: binaries.to_owned(),
            cache: postroom_testkit::cache_folder()
                .context("neither XDG_CACHE_HOME nor HOME is set")?,
        })
    }

    /// A command that runs in the repository.
    ///
    /// What `cargo run` has set for this program is taken out again: some build scripts watch
    /// those variables, and would rebuild half of the dependencies each time that someone
    /// changes between `cargo xtask` and plain cargo.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// The cargo that runs this program.
    pub(crate) fn cargo(&self) -> Command {
        self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// The folder of an example.
    pub(crate) fn example(&self, name: &str) -> PathBuf {
        self.root.join("examples").join(name)
    }
}
