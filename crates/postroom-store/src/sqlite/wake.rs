//! Noticing commits, in this process or another.
//!
//! SQLite sends no signals, but every commit writes to the write-ahead log beside the file.
//! Looking at that file's time and size costs an idle relay a system call, and finds a commit
//! sooner than the poll does. Two commits within one tick of the file system's clock can look
//! like one; the poll finds the second.

use async_trait::async_trait;
use postroom_core::Wake;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often an idle relay looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Watches the write-ahead log of the file at `path`.
pub(super) fn watch(path: &Path) -> Box<dyn Wake> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    Box::new(SqliteWake { seen: look(&log), log })
}

struct SqliteWake {
    log: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

/// What is seen of the log; nothing while there is none.
fn look(log: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(log).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[async_trait]
impl Wake for SqliteWake {
    async fn woken(&mut self) {
        loop {
            let now = look(&self.log);
            if now != self.seen {
                self.seen = now;
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn busy(&mut self, busy: bool) {
        // A relay that has become idle takes once more; only what comes later is news.
        if !busy {
            self.seen = look(&self.log);
        }
    }
}
