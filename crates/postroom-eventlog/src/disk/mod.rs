//! The files of a log, behind a trait, so that tests can take the power away.

mod folder;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use folder::Folder;
pub use folder::FolderError;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A flat folder of files.
pub(crate) trait Disk: Debug + Send + Sync + 'static {
    /// Opens a file that is there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes an empty file, in place of one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Gives a file another name, in place of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes what was created, renamed and removed survive a loss of power.
    fn sync(&self) -> io::Result<()>;
    /// Lets others use the folder. Whoever calls changes nothing any more.
    fn release(&self) {}
}

/// A file of it. What is written may be lost with the power until [`DiskFile::sync`] has returned.
pub(crate) trait DiskFile: Debug + Send + Sync + 'static {
    /// Reads what is there; fewer bytes only at the file's end.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize>;
    /// Writes all of it.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// How long the file is.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Makes content and length survive a loss of power.
    fn sync(&self) -> io::Result<()>;
}
