//! The names of a queue's keys.

/// Where the watcher's position in the event stream is kept. No job can have this id.
pub(super) const POSITION: &str = "postroom:position";

/// The field of a job that says how many attempts at its message had failed before; left out for none.
/// `add.lua` writes it.
pub(super) const FAILED_BEFORE: &str = "postroom:failed";

/// The keys of one queue.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// What all of them begin with, the colon included.
    base: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, name: &str) -> Self {
        Self { base: format!("{prefix}:{name}:") }
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn of(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.base)
    }

    /// Whether a cluster keeps them together: they need a hash tag that is the same in all.
    pub(super) fn share_a_slot(&self) -> bool {
        self.tag_end().is_some()
    }

    /// Whether it keeps those of all queues together: the tag is in the prefix.
    pub(super) fn share_a_slot_with_others(&self) -> bool {
        self.tag_end().is_some_and(|end| self.base.find(':').is_some_and(|prefix| end < prefix))
    }

    /// Where the hash tag ends.
    fn tag_end(&self) -> Option<usize> {
        let begin = self.base.find('{')?;
        let length = self.base[begin + 1..].find('}').filter(|length| *length > 0)?;
        Some(begin + 1 + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hash_tag_keeps_keys_together() {
        for (prefix, name, together) in [
            ("{bull}", "q", true),
            ("bull", "{q}", true),
            ("bull", "q", false),
            ("{}", "q", false),
            ("{bull", "q", false),
            ("{bull", "q}", true),
        ] {
            assert_eq!(Keys::new(prefix, name).share_a_slot(), together, "{prefix}:{name}");
        }
        for (prefix, name, together) in
            [("{bull}", "q", true), ("bull", "{q}", false), ("{bull", "q}", false)]
        {
            assert_eq!(Keys::new(prefix, name).share_a_slot_with_others(), together);
        }
    }
}
