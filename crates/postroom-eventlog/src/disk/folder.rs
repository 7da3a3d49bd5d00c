//! A real folder, which one process at a time may use.

use super::{Disk, DiskFile};
use crate::log::segment::number_of;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file that a running log holds a lock on. It stays when the log is closed; only the lock goes.
const LOCK: &str = "lock";

/// A folder on a real disk, locked for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    lock: Mutex<Option<File>>,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process has it.
    #[error("{} is in use by another server{}: stop that one first", .path.display(), in_brackets(.holder))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// What the other server left in the lock file.
        holder: String,
    },
    /// There is no log in it.
    #[error("there is no event log in {}", .0.display())]
    NoLog(PathBuf),
    /// It cannot be made, or locked.
    #[error("the folder {} cannot be used", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Makes a folder and those above it, for good once this returns.
fn create_durably(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(path)?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn in_brackets(holder: &str) -> String {
    if holder.is_empty() { String::new() } else { format!(" ({holder})") }
}

impl Folder {
    /// Locks a folder, and makes it if it is not there.
    pub(crate) fn lock(path: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Io { path: path.to_owned(), source };
        create_durably(path).map_err(failed)?;
        let file = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut lock = options.open(file).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = lock.read_to_string(&mut holder);
                let holder = holder.trim().chars().take(100).collect();
                return Err(FolderError::InUse { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Only for others' messages: a disk that is full is no reason not to start.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "process {}", std::process::id()));
        Ok(Self { path: path.to_owned(), lock: Mutex::new(Some(lock)) })
    }

    /// The same for a folder that must have a log.
    pub(crate) fn lock_existing(path: &Path) -> Result<Self, FolderError> {
        let entries = fs::read_dir(path)
            .map_err(|source| FolderError::Io { path: path.to_owned(), source })?;
        let mut names = entries.flatten().map(|entry| entry.file_name());
        // Nothing is left behind in a folder that was named by mistake.
        if !names.any(|name| name.to_str().is_some_and(|name| number_of(name).is_some())) {
            return Err(FolderError::NoLog(path.to_owned()));
        }
        Self::lock(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.release();
    }
}

impl Disk for Folder {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.file(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Arc::new(RealFile(options.open(self.file(name))?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.file(from), self.file(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn release(&self) {
        if let Some(lock) = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nobody holds it any more, and the next one to look should not read otherwise.
            let _ = lock.set_len(0);
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < to.len() {
            match self.0.read_at(&mut to[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
