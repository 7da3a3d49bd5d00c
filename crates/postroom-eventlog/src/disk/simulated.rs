//! A disk that forgets, when the power goes, what was not synced, or any part of it.

use super::{Disk, DiskFile};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a loss of power leaves or takes at once.
const SECTOR: usize = 512;

/// A small generator, so that a seed says all.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides.max(1)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: HashMap<u64, Content>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next_file: u64,
    /// How many more writes and syncs succeed before the power goes.
    power: Option<u64>,
    is_dead: bool,
    /// After how many more writes and syncs one fails.
    hiccup: Option<u64>,
    /// Whether a sync of a file only says that it has done something.
    is_lying: bool,
}

#[derive(Clone, Debug, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Content {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Write(offset, written) => {
                let (start, end) = (*offset as usize, *offset as usize + written.len());
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(written);
            }
            Change::Length(length) => bytes.resize(*length as usize, 0),
        }
    }

    /// What is left of it: any of the sectors that were not synced, each or none.
    fn torn(&self, dice: &mut Dice) -> Vec<u8> {
        let mut left = self.durable.clone();
        let chance = dice.roll(5);
        for change in &self.unsynced {
            match change {
                Change::Length(_) if dice.roll(2) == 0 => Self::apply(&mut left, change),
                Change::Length(_) => {}
                Change::Write(offset, written) => {
                    for (index, sector) in written.chunks(SECTOR).enumerate() {
                        if dice.roll(4) < chance {
                            let at = offset + (index * SECTOR) as u64;
                            Self::apply(&mut left, &Change::Write(at, sector.to_vec()));
                        }
                    }
                }
            }
        }
        left
    }
}

impl SimulatedDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk whose syncs do nothing, to see that tests notice.
    pub(crate) fn lying() -> Self {
        let state = State { is_lying: true, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Lets the power go after so many more changes. Everything fails from then on.
    pub(crate) fn lose_power_after(&self, changes: u64) {
        self.state().power = Some(changes);
    }

    /// Lets one write or sync fail after so many, and the others succeed.
    pub(crate) fn fail_once_after(&self, changes: u64) {
        self.state().hiccup = Some(changes);
    }

    /// The disk as it is found after a kill: the system still has everything that was written.
    pub(crate) fn after_kill(&self) -> Self {
        let state = self.state();
        let files = state.files.iter().map(|(file, content)| {
            let bytes = content.current.clone();
            (*file, Content { durable: bytes.clone(), current: bytes, unsynced: Vec::new() })
        });
        let (names, next_file) = (state.names.clone(), state.next_file);
        let durable_names = names.clone();
        let files = files.collect();
        Self(Arc::new(Mutex::new(State {
            files,
            names,
            durable_names,
            next_file,
            ..State::default()
        })))
    }

    /// The disk as it is found when the power is back.
    pub(crate) fn after_loss_of_power(&self, dice: &mut Dice) -> Self {
        let state = self.state();
        let mut names = state.durable_names.clone();
        // Of what was not synced of the folder, a part may have made it all the same, in any order.
        for (name, file) in &state.names {
            if dice.roll(3) == 0 {
                names.insert(name.clone(), *file);
            }
        }
        names.retain(|name, _| state.names.contains_key(name) || dice.roll(3) > 0);
        let (next_file, is_lying) = (state.next_file, state.is_lying);
        let mut found = State { next_file, is_lying, ..State::default() };
        for (name, file) in names {
            let content = &state.files[&file];
            let bytes = content.torn(dice);
            let content = Content { durable: bytes.clone(), current: bytes, unsynced: Vec::new() };
            found.files.insert(file, content);
            found.names.insert(name, file);
        }
        found.durable_names = found.names.clone();
        Self(Arc::new(Mutex::new(found)))
    }

    /// Changes a byte, as a failing disk does.
    pub(crate) fn damage(&self, name: &str, offset: u64) {
        let mut state = self.state();
        let file = state.names[name];
        let content = state.files.get_mut(&file).unwrap();
        content.current[offset as usize] ^= 0x55;
        content.durable = content.current.clone();
    }

    /// Takes some bytes from the end of a segment, or of the last one, and says which that is.
    pub(crate) fn cut(&self, number: Option<u64>, bytes: usize) -> String {
        let mut state = self.state();
        let wanted = number.map(crate::log::segment::name);
        let mut names = state.names.keys().rev().filter(|name| name.ends_with(".log"));
        let name = names.find(|name| wanted.as_ref().is_none_or(|wanted| *name == wanted));
        let name = name.unwrap().clone();
        let file = state.names[&name];
        let content = state.files.get_mut(&file).unwrap();
        content.current.truncate(content.current.len() - bytes);
        content.durable = content.current.clone();
        name
    }

    /// How many bytes the last record of a segment has.
    pub(crate) fn last_record(&self, number: u64) -> usize {
        let state = self.state();
        let content = &state.files[&state.names[&crate::log::segment::name(number)]].current;
        crate::log::record::u32_at(content, content.len() - 4) as usize
    }

    /// How long a file is.
    pub(crate) fn length(&self, name: &str) -> u64 {
        let state = self.state();
        state.files[&state.names[name]].current.len() as u64
    }
}

impl State {
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.hiccup {
            Some(0) => {
                self.hiccup = None;
                return Err(io::Error::other("the disk did not do that"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match &mut self.power {
            Some(0) => {
                self.is_dead = true;
                Err(io::Error::other("the power is gone"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.state().find(name)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.spend()?;
        let file = state.next_file;
        state.next_file += 1;
        state.files.insert(file, Content::default());
        state.names.insert(name.to_owned(), file);
        drop(state);
        Ok(Arc::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        let file = state.find(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        state.find(name)?;
        state.names.remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        state.durable_names = state.names.clone();
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    file: u64,
}

impl SimulatedFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.disk.state();
        let was_dead = state.is_dead;
        let power = state.spend();
        if was_dead {
            return power;
        }
        let content = state.files.get_mut(&self.file).unwrap();
        Content::apply(&mut content.current, &change);
        // The write during which the power goes may have reached the disk in part, too.
        content.unsynced.push(change);
        power
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = &state.files[&self.file].current;
        let start = (offset as usize).min(bytes.len());
        let end = (start + to.len()).min(bytes.len());
        to[..end - start].copy_from_slice(&bytes[start..end]);
        Ok(end - start)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Change::Write(offset, bytes.to_vec()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[&self.file].current.len() as u64)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Change::Length(length))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.spend()?;
        if state.is_lying {
            return Ok(());
        }
        let content = state.files.get_mut(&self.file).unwrap();
        content.durable = content.current.clone();
        content.unsynced.clear();
        Ok(())
    }
}
