//! Up to where the log has been acknowledged, in a small file of its own.
//!
//! It is written after each sync and not synced itself. So it is exact after a kill, when the page
//! cache survives, and may be older after a loss of power; it is never ahead of the log.

use crate::disk::{Disk, DiskFile};
use crate::log::record::{u32_at, u64_at};
use std::io;
use std::sync::Arc;

const FILE: &str = "acknowledged";
const LENGTH: usize = 12;

/// Notes what was acknowledged.
#[derive(Debug)]
pub(crate) struct Acknowledged(Arc<dyn DiskFile>);

impl Acknowledged {
    /// Opens the file, or makes it.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Self> {
        match disk.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(FILE).map(Self),
            opened => opened.map(Self),
        }
    }

    /// Notes that the log is synced up to a position. What cannot be noted is not known later.
    pub(crate) fn note(&self, position: u64) {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&position.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..8]);
        bytes[8..].copy_from_slice(&sum.to_le_bytes());
        let _ = self.0.write_at(0, &bytes);
    }
}

/// What was noted last; 0 where nothing is known.
pub(crate) fn known(disk: &dyn Disk) -> u64 {
    let mut bytes = [0; LENGTH];
    let read = disk.open(FILE).and_then(|file| file.read_at(0, &mut bytes)).unwrap_or(0);
    let is_whole = read == LENGTH && u32_at(&bytes, 8) == crc32c::crc32c(&bytes[..8]);
    if is_whole { u64_at(&bytes, 0) } else { 0 }
}

/// Forgets it, since what was acknowledged is lost.
pub(crate) fn forget(disk: &dyn Disk) -> io::Result<()> {
    match disk.remove(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| disk.sync()),
    }
}
