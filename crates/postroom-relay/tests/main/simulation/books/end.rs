//! The end: once nothing breaks any more, everything drains.

use super::Books;
use postroom_core::{Record, Status};

impl Books {
    /// Whether every message is SENT or DEAD, and nobody holds anything.
    pub(in super::super) fn are_closed(&self) -> bool {
        let state = self.state();
        let closed = |status: Status| matches!(status, Status::Sent | Status::Dead);
        state.messages.values().all(|known| closed(known.status) && known.holder.is_none())
            && state.claims.values().all(|claim| !claim.present)
    }

    /// Compares with what the store holds in the end.
    pub(in super::super) fn close(&self, records: &[Record], dead_letter: bool) {
        let state = &mut *self.state();
        for record in records {
            state.meet(&record.message);
            state.compare(record);
        }
        let mut wrong = Vec::new();
        for (seq, known) in &state.messages {
            if !records.iter().any(|record| record.message.seq == *seq) {
                wrong.push(format!("message {seq} is lost"));
            }
            match known.status {
                Status::Sent | Status::Dead => {}
                open => wrong.push(format!("message {seq} is {open} in the end")),
            }
            if known.status == Status::Sent && known.deliveries == 0 {
                wrong.push(format!("message {seq} is SENT and was never delivered"));
            }
            let tells = known.status == Status::Dead && !known.is_announcement && dead_letter;
            if tells != known.announced {
                wrong.push(format!("the death of message {seq} was announced or not, wrongly"));
            }
        }
        for wrong in wrong {
            state.violation(wrong);
        }
    }
}
