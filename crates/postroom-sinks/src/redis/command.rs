//! What is sent to Redis for one message.

use super::Mode;
use crate::wrapping::{Name, Wrapped};
use ::redis::{Cmd, Script, cmd};
use postroom_core::Outcome;
use std::sync::LazyLock;
use std::time::Duration;

/// The field of a stream's entry that holds the body.
const BODY: &str = "body";

/// Lua cannot hand over more than a few thousand arguments at once.
const FIELDS_MAX: usize = 2000;

/// Appends and leaves a mark, or finds the mark and does nothing. Both keys are in one slot.
const APPEND_ONCE: &str = "
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call(ARGV[1], KEYS[1], unpack(ARGV, 3))
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
";

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(APPEND_ONCE));

/// How messages are appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appending {
    pub(super) mode: Mode,
    pub(super) max_length: Option<u64>,
    /// How long repetitions are recognised; zero: not at all.
    pub(super) dedupe: Duration,
}

/// A message as it is appended.
pub(super) struct Entry {
    pub(super) index: usize,
    pub(super) key: String,
    once: String,
    fields: Vec<(Name, String)>,
    body: String,
}

impl Entry {
    pub(super) fn new(index: usize, key: String, mut wrapped: Wrapped) -> Result<Self, Outcome> {
        let mut fields: Vec<(Name, String)> = wrapped
            .take_headers("ce-")
            .filter(|(name, _)| name != BODY && name != "content-type")
            .collect();
        fields.push((Name::Borrowed("content-type"), wrapped.content_type.to_owned()));
        if fields.len() > FIELDS_MAX {
            return Err(Outcome::reject(format!(
                "the message has more than {FIELDS_MAX} headers: put them into the payload",
            )));
        }
        let Wrapped { once, body, .. } = wrapped;
        Ok(Self { index, key, once, fields, body })
    }

    /// How many bytes the longest of its values has.
    pub(super) fn longest_value(&self) -> u64 {
        let lengths = self.fields.iter().map(|(_, value)| value.len());
        lengths.fold(self.body.len(), usize::max) as u64
    }
}

impl Appending {
    /// The command for one entry. `is_first` in its pipeline: it brings the script along, and so
    /// loads it for those that follow.
    pub(super) fn command(&self, entry: &Entry, is_first: bool) -> Result<Cmd, Outcome> {
        if self.mode == Mode::Publish {
            let mut command = cmd("PUBLISH");
            command.arg(&entry.key).arg(&entry.body);
            return Ok(command);
        }
        let name = if self.mode == Mode::Stream { "XADD" } else { "LPUSH" };
        if self.dedupe.is_zero() {
            let mut command = cmd(name);
            command.arg(&entry.key);
            self.add_content(&mut command, entry);
            return Ok(command);
        }
        let mark = mark(&entry.key, &entry.once).ok_or_else(|| {
            Outcome::reject(
                "the key made from this message has braces that are no hash tag, so that nothing \
                 else can be kept in its slot: correct the row's fields, or set the integration's \
                 `dedupe` to \"0s\"",
            )
        })?;
        let mut command = if is_first { cmd("EVAL") } else { cmd("EVALSHA") };
        command.arg(if is_first { APPEND_ONCE } else { SCRIPT.get_hash() });
        let milliseconds = u64::try_from(self.dedupe.as_millis()).unwrap_or(u64::MAX);
        command.arg(2).arg(&entry.key).arg(mark).arg(name).arg(milliseconds);
        self.add_content(&mut command, entry);
        Ok(command)
    }

    fn add_content(&self, command: &mut Cmd, entry: &Entry) {
        if self.mode != Mode::Stream {
            command.arg(&entry.body);
            return;
        }
        if let Some(length) = self.max_length {
            // Roughly: to the entry would cost Redis far more.
            command.arg("MAXLEN").arg("~").arg(length);
        }
        command.arg("*");
        for (name, value) in &entry.fields {
            command.arg(name.as_ref()).arg(value);
        }
        command.arg(BODY).arg(&entry.body);
    }
}

/// The key of the mark, in the slot of `key`. `None` when there can be none.
pub(super) fn mark(key: &str, once: &str) -> Option<String> {
    // The slot follows from what stands between the first brace and the next closing one, or
    // from the whole key when that is nothing.
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    match tag {
        Some(tag) => Some(format!("{{{tag}}}:postroom:{key}:{once}")),
        None if key.contains(['{', '}']) => None,
        None => Some(format!("{{{key}}}:postroom:{once}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_shares_the_slot_of_its_key() {
        assert_eq!(mark("orders", "e").as_deref(), Some("{orders}:postroom:e"));
        assert_eq!(mark("a{shop}b", "e").as_deref(), Some("{shop}:postroom:a{shop}b:e"));
        for no_tag in ["a{}b", "a}b", "a{b", "}{"] {
            assert_eq!(mark(no_tag, "e"), None, "{no_tag}");
        }
    }
}
