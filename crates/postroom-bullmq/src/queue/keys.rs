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
        let tag = self.base.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        tag.is_some_and(|(tag, _)| !tag.is_empty())
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
    }
}
