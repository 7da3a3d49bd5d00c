//! A message as one line of JSON, for the sinks that write lines.

use postroom_core::{Message, Outcome, Report};

/// The lines of a batch, and which of its messages they are. The others are rejected.
pub(crate) fn of_batch(batch: &[Message], report: &Report<'_>) -> (Vec<u8>, Vec<usize>) {
    let mut lines = Vec::new();
    let mut written = Vec::with_capacity(batch.len());
    for (index, message) in batch.iter().enumerate() {
        match append(message, &mut lines) {
            Ok(()) => written.push(index),
            Err(rejection) => report.outcome(index, rejection),
        }
    }
    (lines, written)
}

/// Appends `message` and a line feed to `lines`.
///
/// A payload that was kept byte for byte may hold line breaks. JSON allows those between tokens
/// only, so a space in their place means the same and keeps the message on one line.
///
/// # Errors
/// The rejection to report when the row holds something that is no JSON; `lines` is unchanged.
fn append(message: &Message, lines: &mut Vec<u8>) -> Result<(), Outcome> {
    let start = lines.len();
    if serde_json::to_writer(&mut *lines, message).is_err() {
        lines.truncate(start);
        return Err(Outcome::reject(
            "the payload or the headers are not JSON: correct the row and set it back to PENDING",
        ));
    }
    for byte in &mut lines[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    lines.push(b'\n');
    Ok(())
}
