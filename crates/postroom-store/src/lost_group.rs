//! Which rescued messages of a lane are taken together, where the store decides that in Rust.

use postroom_core::{Quota, Rescued, Take, rows_after};

/// What decides about one rescued message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) rescues: u32,
    /// What its content weighs.
    pub(crate) bytes: usize,
}

/// Keeps of what is due in a lane one claim's worth, and at most `left`, which becomes less by it.
/// No claim has more messages than the rescues of each of them allow, nor more bytes than `take`
/// does, unless a single message has.
pub(crate) fn keep<T>(
    due: &mut Vec<T>,
    take: &Take<'_>,
    quota: &Quota,
    which: Rescued,
    left: &mut usize,
    lost: impl Fn(&T) -> Lost,
) {
    let (mut kept, mut together, mut bytes) = (0, usize::MAX, 0_usize);
    due.retain(|one| {
        let Lost { rescues, bytes: own } = lost(one);
        let rows = rows_after(rescues, quota.rows);
        let is_alone = rows == 1 && !take.for_queue;
        if is_alone != (which == Rescued::Alone) {
            return false;
        }
        together = together.min(rows);
        bytes = bytes.saturating_add(own);
        // Once one does not fit, none behind it does: this is a minimum and that a sum.
        let fits = kept < together && kept < *left && (bytes <= take.bytes || kept == 0);
        kept += usize::from(fits);
        together = if fits { together } else { 0 };
        fits
    });
    *left -= kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_core::RelayId;

    fn kept(which: Rescued, for_queue: bool, bytes: usize, rescues: &[u32]) -> Vec<usize> {
        let quota = Quota { integration: "noop".to_owned(), rows: 100 };
        let take = Take {
            worker: "w",
            relay: RelayId::random(),
            quotas: std::slice::from_ref(&quota),
            rows: usize::MAX,
            bytes,
            payload_limit: usize::MAX,
            for_queue,
        };
        let mut due: Vec<_> = rescues.iter().copied().enumerate().collect();
        let (mut left, lost) = (1_000, |one: &(usize, u32)| Lost { rescues: one.1, bytes: 10 });
        keep(&mut due, &take, &quota, which, &mut left, lost);
        assert_eq!(left + due.len(), 1_000);
        due.into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn a_claim_is_halved_with_every_rescue_until_a_message_is_alone() {
        for (rescues, together) in [(1, 50), (2, 25), (3, 12), (4, 6), (5, 3)] {
            let due = vec![rescues; 100];
            assert_eq!(kept(Rescued::Together, false, 10_000, &due).len(), together);
            assert!(kept(Rescued::Alone, false, 10_000, &due).is_empty());
        }
        for rescues in [6, 7, 31, 32, 64, u32::MAX] {
            let due = vec![rescues; 100];
            assert_eq!(kept(Rescued::Alone, false, 10_000, &due), [0]);
            assert!(kept(Rescued::Together, false, 10_000, &due).is_empty());
            // In a queue it harms nobody.
            assert_eq!(kept(Rescued::Together, true, 10_000, &due), [0]);
        }
    }

    #[test]
    fn those_that_go_alone_hold_up_no_others_and_no_claim_is_too_large_for_one_of_its_messages() {
        assert_eq!(kept(Rescued::Together, false, 10_000, &[9, 1, 9, 1, 2]), [1, 3, 4]);
        assert_eq!(kept(Rescued::Alone, false, 10_000, &[1, 9, 9]), [1]);
        // Three messages may share a claim after five rescues, and the fourth ends it.
        assert_eq!(kept(Rescued::Together, false, 10_000, &[1, 5, 1, 1]), [0, 1, 2]);
        assert_eq!(kept(Rescued::Together, false, 10_000, &[1, 1, 1, 5, 1]), [0, 1, 2]);
    }

    #[test]
    fn bytes_are_bounded_and_one_message_is_always_taken() {
        assert_eq!(kept(Rescued::Together, false, 25, &[1, 1, 1]), [0, 1]);
        assert_eq!(kept(Rescued::Together, false, 1, &[1, 1, 1]), [0]);
    }
}
