//! A message as one line of JSON, for the sinks that write lines.

use postroom_core::{Message, Outcome};

/// Appends `message` and a line feed to `lines`.
///
/// A payload that was kept byte for byte may hold line breaks. JSON allows those between tokens
/// only, so a space in their place means the same and keeps the message on one line.
///
/// # Errors
/// The rejection to report when the row holds something that is no JSON; `lines` is unchanged.
pub(crate) fn append(message: &Message, lines: &mut Vec<u8>) -> Result<(), Outcome> {
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
