//! The sink that appends each message to a file as one line of JSON.

use crate::json_line;
use crate::options::Options;
use crate::registry::{Build, BuildError, SinkConfig, SinkKind};
use async_trait::async_trait;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "file",
    keys: &["path"],
    concurrency: 1,
    timeout: Duration::from_secs(30),
    read: |options, _| FileConfig::read(options).map(SinkConfig::new),
};

/// Where the lines go.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The file; made when it is not there. Its folder must be.
    pub path: PathBuf,
}

impl FileConfig {
    fn read(options: &mut Options) -> Option<Self> {
        let path: PathBuf = options.required("path", "the path of a file")?;
        if path.as_os_str().is_empty() {
            options.fault(&["path"], "is empty", None);
            return None;
        }
        Some(Self { path })
    }
}

impl Build for FileConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(FileSink::new(self.clone())))
    }
}

/// Appends messages to a file, a line each.
///
/// A message is acknowledged once the operating system has its line: that survives the end of
/// this process, not a power cut, since nothing is synced to the disk. The file is opened for
/// each batch, so it can be rotated by renaming it. A line that a crash cut short is closed
/// before the next one is written; readers should skip lines that are no JSON.
#[derive(Debug)]
pub struct FileSink {
    path: Arc<PathBuf>,
    /// One writer at a time, so that no batch sees another's line half written.
    turn: Arc<Mutex<()>>,
}

impl FileSink {
    /// A sink that appends to the file of `config`. Nothing is opened yet.
    #[must_use]
    pub fn new(config: FileConfig) -> Self {
        Self { path: Arc::new(config.path), turn: Arc::default() }
    }
}

#[async_trait]
impl Sink for FileSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let (lines, written) = json_line::of_batch(batch, report);
        let (path, turn) = (Arc::clone(&self.path), Arc::clone(&self.turn));
        // On a thread of its own the write is never cut in half by a timeout of the lane.
        let result = tokio::task::spawn_blocking(move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            append(&path, lines)
        })
        .await
        .unwrap_or_else(|stopped| Err(io::Error::other(stopped)));
        for index in written {
            report.outcome(index, classify(&self.path, &result));
        }
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let path = Arc::clone(&self.path);
        tokio::task::spawn_blocking(move || {
            // A probe leaves nothing behind: the folder answers for a file that is not there.
            if path.exists() {
                return OpenOptions::new().append(true).open(&*path).map(drop);
            }
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = std::fs::metadata(folder.unwrap_or(Path::new(".")))?;
            if !folder.is_dir() || folder.permissions().readonly() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(())
        })
        .await
        .unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
        .map_err(|error| ProbeError(describe(&self.path, &error)))
    }
}

fn append(path: &Path, lines: Vec<u8>) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let lines = if ends_mid_line(&mut file)? { [b"\n".to_vec(), lines].concat() } else { lines };
    file.write_all(&lines)
}

fn ends_mid_line(file: &mut File) -> io::Result<bool> {
    // A pipe or a terminal has no tail to look at.
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// What is wrong with the path concerns every message; a full disk may be emptied.
fn classify(path: &Path, result: &io::Result<()>) -> Outcome {
    let Err(error) = result else { return Outcome::Delivered };
    let text = describe(path, error);
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ReadOnlyFilesystem => Outcome::refuse(text),
        _ => Outcome::retry(text),
    }
}

fn describe(path: &Path, error: &io::Error) -> String {
    format!(
        "cannot append to {}: {error}: check that its folder exists and can be written to",
        path.display()
    )
}
