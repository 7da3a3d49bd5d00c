//! Copying a log to another folder, also while a server has it open.

use crate::disk::{Disk, Folder, FolderError};
use crate::eventlog::OpenError;
use crate::log::recovery::recover;
use crate::log::segment;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was copied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackedUp {
    /// How many segments.
    pub segments: usize,
    /// How many bytes.
    pub bytes: u64,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no log to copy.
    #[error("there is no event log in {}", .0.display())]
    NoLog(PathBuf),
    /// The copy would mix with what is there.
    #[error("{} is not empty: name a new folder for each backup", .0.display())]
    NotEmpty(PathBuf),
    /// The folder of the copy cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file cannot be read or written.
    #[error("copying {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The copy is not a log that would start: its original is damaged.
    #[error("the copy was checked, and is not whole")]
    Damaged(#[source] OpenError),
}

/// Copies everything that has been acknowledged when this is called, and checks the copy, which is a
/// data folder like any other.
///
/// # Errors
/// See [`BackupError`].
pub fn backup(from: &Path, to: &Path) -> Result<BackedUp, BackupError> {
    let mut names: Vec<String> = list(from)?;
    names.retain(|name| segment::number_of(name).is_some());
    names.sort_unstable_by_key(|name| segment::number_of(name));
    if names.is_empty() {
        return Err(BackupError::NoLog(from.to_owned()));
    }
    if !list(to)?.is_empty() {
        return Err(BackupError::NotEmpty(to.to_owned()));
    }
    let folder: Arc<dyn Disk> = Arc::new(Folder::lock(to)?);
    // In the order of positions: what is appended meanwhile comes behind everything that is copied.
    for name in &names {
        copy(&from.join(name), &to.join(name))?;
    }
    folder.sync().map_err(failed(to))?;
    // A server may have been in the midst of a write; what is cut of it was not acknowledged.
    let log = recover(folder, 0).map_err(|error| BackupError::Damaged(error.into()))?;
    let mut bytes = 0;
    for segment in log.segments().iter() {
        bytes += segment.file.len().map_err(failed(to))?;
    }
    Ok(BackedUp { segments: names.len(), bytes })
}

fn list(folder: &Path) -> Result<Vec<String>, BackupError> {
    let mut names = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(failed(folder))?.file_name();
                names.push(name.to_string_lossy().into_owned());
            }
            Ok(names)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(names),
        Err(error) => Err(failed(folder)(error)),
    }
}

/// Copies a file as long as it is now. It may be replaced meanwhile, and never changes otherwise but
/// by growing.
fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    let source = File::open(from).map_err(failed(from))?;
    let length = source.metadata().map_err(failed(from))?.len();
    let mut target = File::create_new(to).map_err(failed(to))?;
    io::copy(&mut source.take(length), &mut target).map_err(failed(to))?;
    target.sync_all().map_err(failed(to))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BackupError + '_ {
    |source| BackupError::Io { path: path.to_owned(), source }
}
