//! One cluster at a time: each is several servers, and the machines that run tests have few cores.

use crate::cache_folder;
use anyhow::Context as _;
use std::fs::{self, File};

/// The right to run a cluster. Whoever wants the next one waits until this is dropped, in whatever
/// process.
#[derive(Debug)]
pub(crate) struct ClusterTurn {
    _lock: File,
}

impl ClusterTurn {
    /// Waits for it; blocks.
    pub(crate) fn wait() -> anyhow::Result<Self> {
        let cache = cache_folder().context("neither XDG_CACHE_HOME nor HOME is set")?;
        fs::create_dir_all(&cache).context("making the cache folder")?;
        let lock = File::create(cache.join("clusters.lock")).context("a lock file")?;
        lock.lock().context("waiting for another test's cluster")?;
        Ok(Self { _lock: lock })
    }
}
