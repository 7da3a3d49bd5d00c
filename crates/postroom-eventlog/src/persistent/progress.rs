//! How far a group has come: the place before which nothing is unfinished.

use std::collections::BTreeMap;

/// How far a group has come. Places are revisions or positions.
#[derive(Debug)]
pub(super) struct Progress {
    /// What has been read and is not finished, each with the place before it.
    unfinished: BTreeMap<u64, Option<u64>>,
    read_to: Option<u64>,
}

impl Progress {
    /// A group that goes on after this place.
    pub(super) fn after(place: Option<u64>) -> Self {
        Self { unfinished: BTreeMap::new(), read_to: place }
    }

    /// The place up to which the group has read.
    pub(super) fn read_to(&self) -> Option<u64> {
        self.read_to
    }

    /// A message has been read.
    pub(super) fn begin(&mut self, place: u64) {
        self.unfinished.insert(place, self.read_to);
        self.pass(place);
    }

    /// Everything up to here has been read, and the last of it needs no consumer.
    pub(super) fn pass(&mut self, place: u64) {
        self.read_to = self.read_to.max(Some(place));
    }

    /// A message is acknowledged, parked or skipped.
    pub(super) fn finish(&mut self, place: u64) {
        self.unfinished.remove(&place);
    }

    /// The last place with nothing unfinished at it or before it.
    pub(super) fn safe(&self) -> Option<u64> {
        match self.unfinished.first_key_value() {
            Some((_, before)) => *before,
            None => self.read_to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn checkpoint_stays_before_the_oldest_unfinished_message() {
        let mut progress = Progress::after(Some(10));
        for place in [20, 30, 40] {
            progress.begin(place);
        }
        progress.finish(30);
        assert_eq!(progress.safe(), Some(10));
        progress.finish(20);
        assert_eq!(progress.safe(), Some(30));
        progress.finish(40);
        assert_eq!(progress.safe(), Some(40));
    }

    #[test]
    fn events_that_need_no_consumer_move_the_checkpoint_only_once_all_before_are_finished() {
        let mut progress = Progress::after(None);
        progress.pass(1);
        progress.begin(2);
        progress.pass(7);
        assert_eq!(progress.safe(), Some(1));
        progress.finish(2);
        assert_eq!(progress.safe(), Some(7));
    }

    #[test]
    fn group_that_has_finished_nothing_has_no_checkpoint() {
        let mut progress = Progress::after(None);
        progress.begin(0);
        assert_eq!(progress.safe(), None);
    }
}
