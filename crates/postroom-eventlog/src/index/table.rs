//! What is older, in an embedded database.
//!
//! Positions are kept by 128 to a row, since numbers have no gaps: the events of one stream, and
//! more so those of a category or a type, would take a row each otherwise.

use super::backend::Backend;
use super::tail::{Recent, Tail};
use super::{CATEGORY_PREFIX, Extent, Key, TYPE_PREFIX};
use crate::disk::{Disk, DiskFile};
use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, Table as Rows,
    TableDefinition,
};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

const FILE: &str = "index.redb";
/// By name: id, number of the next event, position of the tombstone or 0.
const STREAMS: TableDefinition<'_, &str, (u64, u64, u64)> = TableDefinition::new("streams");
/// By stream and number / 128: positions, 0 where there is none.
const BLOCKS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("blocks");
/// By a hash of stream and event id: a position.
const IDS: TableDefinition<'_, u64, u64> = TableDefinition::new("ids");
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
const CHECKPOINT: &str = "checkpoint";
const NEXT_STREAM: &str = "next stream";
const FORMAT: &str = "format";
const THIS_FORMAT: u64 = 1;

const BLOCK: u64 = 128;
/// What the database may keep in memory.
const CACHE: usize = 32 << 20;

/// Something is wrong with the index. It can be deleted: the log makes it again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("the index: {0}")]
    Table(#[source] Box<redb::Error>),
    #[error("the index cannot be opened: {0}")]
    Unusable(String),
    #[error("the log was closed")]
    Closed,
}

macro_rules! from_redb {
    ($($error:ty),*) => {
        $(impl From<$error> for IndexError {
            fn from(error: $error) -> Self {
                Self::Table(Box::new(error.into()))
            }
        })*
    };
}
from_redb!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

/// The database, until it is closed. Nobody else may open the file before.
#[derive(Debug)]
pub(super) struct Table {
    disk: Arc<dyn Disk>,
    database: RwLock<State>,
}

#[derive(Debug)]
enum State {
    Open(Database),
    /// It could not be opened again after an error.
    Failed(String),
    Closed,
}

impl State {
    fn database(&self) -> Result<&Database, IndexError> {
        match self {
            Self::Open(database) => Ok(database),
            Self::Failed(reason) => Err(IndexError::Unusable(reason.clone())),
            Self::Closed => Err(IndexError::Closed),
        }
    }
}

impl Table {
    /// Opens the table, or begins with an empty one.
    pub(super) fn open(disk: &Arc<dyn Disk>) -> Result<Self, IndexError> {
        let table = |database| Self {
            disk: Arc::clone(disk),
            database: RwLock::new(State::Open(database)),
        };
        let is_there = disk.list().map_err(of_disk)?.iter().any(|name| name == FILE);
        if is_there {
            // As the log is read as a whole when it is opened, so is its index.
            match unless_panicking(|| open_database(disk.open(FILE)).and_then(checked)) {
                Ok(database) => return Ok(table(database)),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the index of the event log cannot be used; making it again from the log"
                ),
            }
        }
        open_database(disk.create(FILE)).map(table)
    }

    /// The checkpoint of a table that is there and can be used.
    pub(super) fn checkpoint_of_existing(disk: &dyn Disk) -> Option<u64> {
        let database = unless_panicking(|| open_database(disk.open(FILE))).ok()?;
        checkpoint(&database.begin_read().ok()?).ok()
    }

    /// Opens the database again after an error. What is not in it is still in memory.
    pub(super) fn reopen(&self) {
        let mut state = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if let State::Closed = *state {
            return;
        }
        // Closed first: it is the same file.
        *state = State::Failed("it is being opened".to_owned());
        *state = match unless_panicking(|| open_database(self.disk.open(FILE))) {
            Ok(database) => State::Open(database),
            Err(error) => State::Failed(error.to_string()),
        };
    }

    pub(super) fn remove(disk: &dyn Disk) -> io::Result<()> {
        match disk.remove(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| disk.sync()),
        }
    }

    /// Waits for those who use the database, and closes it.
    pub(super) fn close(&self) {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = State::Closed;
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let state = self.database.read().unwrap_or_else(PoisonError::into_inner);
        read(&state.database()?.begin_read()?)
    }

    pub(super) fn checkpoint(&self) -> Result<u64, IndexError> {
        self.read(checkpoint)
    }

    pub(super) fn extent(&self, key: Key<'_>) -> Result<Extent, IndexError> {
        self.read(|read| {
            let streams = read.open_table(STREAMS)?;
            Ok(streams.get(&*name(key))?.map_or_else(Extent::default, |row| {
                let (_, next, tombstone) = row.value();
                Extent { next, tombstone: (tombstone > 0).then_some(tombstone) }
            }))
        })
    }

    /// Adds the positions of numbers from `from` to before `upto`, at most `count`.
    pub(super) fn positions(
        &self,
        key: Key<'_>,
        from: u64,
        upto: u64,
        count: usize,
        to: &mut Vec<(u64, u64)>,
    ) -> Result<(), IndexError> {
        self.read(|read| {
            let Some(row) = read.open_table(STREAMS)?.get(&*name(key))? else { return Ok(()) };
            let (stream, next, _) = row.value();
            let upto = upto.min(next);
            if from >= upto {
                return Ok(());
            }
            let blocks = read.open_table(BLOCKS)?;
            for row in blocks.range((stream, from / BLOCK)..=(stream, (upto - 1) / BLOCK))? {
                let (key, positions) = row?;
                let first = key.value().1 * BLOCK;
                for (number, position) in (first..).zip(unpack(positions.value())) {
                    if number >= from && number < upto && position > 0 {
                        to.push((number, position));
                        if to.len() >= count {
                            return Ok(());
                        }
                    }
                }
            }
            Ok(())
        })
    }

    pub(super) fn by_id(&self, id: u64) -> Result<Option<u64>, IndexError> {
        self.read(|read| Ok(read.open_table(IDS)?.get(id)?.map(|position| position.value())))
    }

    /// Writes a part of the log, and that the table is complete up to its end.
    pub(super) fn write(&self, tail: &Tail) -> Result<(), IndexError> {
        let state = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let mut transaction = state.database()?.begin_write()?;
        // A start after a crash is quick then, at the price of some more bytes at each commit.
        transaction.set_quick_repair(true);
        {
            let mut facts = transaction.open_table(FACTS)?;
            let mut next_stream = facts.get(NEXT_STREAM)?.map_or(0, |value| value.value());
            let mut streams = transaction.open_table(STREAMS)?;
            let mut blocks = transaction.open_table(BLOCKS)?;
            let kinds: [(&str, &HashMap<Box<str>, Recent>); 3] = [
                ("", &tail.streams),
                (CATEGORY_PREFIX, &tail.categories),
                (TYPE_PREFIX, &tail.types),
            ];
            for (prefix, recent) in kinds {
                // In the order of their keys, which the tree likes.
                for (name, recent) in recent.iter().collect::<BTreeMap<_, _>>() {
                    let name = format!("{prefix}{name}");
                    let known = streams.get(name.as_str())?.map(|row| row.value());
                    let (stream, next, tombstone) = known.unwrap_or_else(|| {
                        next_stream += 1;
                        (next_stream, 0, 0)
                    });
                    write_positions(&mut blocks, stream, &recent.positions)?;
                    let next = recent.positions.last().map_or(next, |(number, _)| number + 1);
                    let tombstone = recent.tombstone.unwrap_or(tombstone);
                    streams.insert(name.as_str(), (stream, next, tombstone))?;
                }
            }
            let mut ids = transaction.open_table(IDS)?;
            for (id, position) in tail.ids.iter().collect::<BTreeMap<_, _>>() {
                ids.insert(id, position)?;
            }
            facts.insert(NEXT_STREAM, next_stream)?;
            facts.insert(CHECKPOINT, tail.end)?;
        }
        Ok(transaction.commit()?)
    }
}

/// Opening a file with bytes that are wrong may panic in the database's own code.
fn unless_panicking(
    open: impl FnOnce() -> Result<Database, IndexError>,
) -> Result<Database, IndexError> {
    catch_unwind(AssertUnwindSafe(open))
        .unwrap_or_else(|_| Err(IndexError::Unusable("opening it panicked, see above".to_owned())))
}

/// A database all of whose pages are as they were written.
fn checked(mut database: Database) -> Result<Database, IndexError> {
    if database.check_integrity()? {
        return Ok(database);
    }
    let text = "some of it is not as it was written".to_owned();
    Err(IndexError::Table(Box::new(redb::Error::Corrupted(text))))
}

fn of_disk(error: io::Error) -> IndexError {
    IndexError::Table(Box::new(redb::Error::Io(error)))
}

/// The format of a database; none where it is new.
fn format(database: &Database) -> Result<Option<u64>, IndexError> {
    match database.begin_read()?.open_table(FACTS) {
        Ok(facts) => Ok(facts.get(FORMAT)?.map(|value| value.value())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn checkpoint(read: &ReadTransaction) -> Result<u64, IndexError> {
    let facts = read.open_table(FACTS)?;
    Ok(facts.get(CHECKPOINT)?.map_or(0, |value| value.value()))
}

fn open_database(file: io::Result<Arc<dyn DiskFile>>) -> Result<Database, IndexError> {
    let backend = Backend(file.map_err(of_disk)?);
    let database = Builder::new().set_cache_size(CACHE).create_with_backend(backend)?;
    match format(&database)? {
        Some(THIS_FORMAT) => return Ok(database),
        Some(format) => {
            let text = format!("it has format {format}, and this version writes {THIS_FORMAT}");
            return Err(IndexError::Table(Box::new(redb::Error::Corrupted(text))));
        }
        None => {}
    }
    let transaction = database.begin_write()?;
    {
        transaction.open_table(FACTS)?.insert(FORMAT, THIS_FORMAT)?;
        transaction.open_table(STREAMS)?;
        transaction.open_table(BLOCKS)?;
        transaction.open_table(IDS)?;
    }
    transaction.commit()?;
    Ok(database)
}

fn name(key: Key<'_>) -> std::borrow::Cow<'_, str> {
    match key {
        Key::Stream(name) => name.into(),
        Key::Category(category) => format!("{CATEGORY_PREFIX}{category}").into(),
        Key::EventType(event_type) => format!("{TYPE_PREFIX}{event_type}").into(),
    }
}

fn unpack(block: &[u8]) -> impl Iterator<Item = u64> + '_ {
    block.chunks_exact(8).map(|position| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(position);
        u64::from_le_bytes(bytes)
    })
}

fn write_positions(
    blocks: &mut Rows<'_, (u64, u64), &'static [u8]>,
    stream: u64,
    positions: &[(u64, u64)],
) -> Result<(), IndexError> {
    for part in positions.chunk_by(|(a, _), (b, _)| a / BLOCK == b / BLOCK) {
        let Some((first, _)) = part.first() else { continue };
        let key = (stream, first / BLOCK);
        let mut block = blocks.get(key)?.map_or_else(Vec::new, |block| block.value().to_vec());
        for (number, position) in part {
            let at = (number % BLOCK) as usize * 8;
            if block.len() < at + 8 {
                block.resize(at + 8, 0);
            }
            block[at..at + 8].copy_from_slice(&position.to_le_bytes());
        }
        blocks.insert(key, block.as_slice())?;
    }
    Ok(())
}
