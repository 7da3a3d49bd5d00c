//! What the intakes of all stores share: the checks before anything is written, the parts that a
//! batch is written in, and the errors.

use postroom_core::{
    Checkpoint, Limits, NewMessage, POSITION_BYTES, RawJson, StoreError, StoreErrorKind,
    StoreResult,
};

/// What an intake is doing, in its errors.
pub(crate) const DOING: &str = "enqueueing";

/// As long as the column.
const NAME_CHARS: usize = 120;

/// Refuses what no store keeps, before anything is written.
pub(crate) fn check(batch: &[NewMessage], checkpoint: Option<&Checkpoint>) -> StoreResult<()> {
    for (index, message) in batch.iter().enumerate() {
        message.validate(&Limits::default()).map_err(|fault| {
            concerning(index, batch.len(), refused(&format!("message refused: {fault}")))
        })?;
    }
    checkpoint.map_or(Ok(()), check_checkpoint)
}

fn check_checkpoint(checkpoint: &Checkpoint) -> StoreResult<()> {
    let Checkpoint { name, position, expected } = checkpoint;
    let chars = name.chars().count();
    if !(1..=NAME_CHARS).contains(&chars) {
        let limits = format!("at least 1 and at most {NAME_CHARS} are allowed");
        return Err(refused(&format!("the checkpoint's name has {chars} characters, {limits}")));
    }
    let bytes = position.len();
    if bytes > POSITION_BYTES {
        return Err(refused(&format!(
            "the position of checkpoint {name:?} has {bytes} bytes, at most {POSITION_BYTES} are \
             allowed"
        )));
    }
    let mut texts = [name, position].into_iter().chain(expected);
    if texts.any(|text| text.contains('\0')) {
        return Err(refused(&format!(
            "the name or a position of checkpoint {name:?} holds a NUL character: remove it"
        )));
    }
    Ok(())
}

fn refused(why: &str) -> StoreError {
    StoreError::plain(StoreErrorKind::Refused, format!("{DOING}: {why}"))
}

/// Adds to a refusal which message of a batch it concerns. What else goes wrong concerns them all.
pub(crate) fn concerning(index: usize, batch: usize, error: StoreError) -> StoreError {
    if batch == 1 || error.kind != StoreErrorKind::Refused {
        return error;
    }
    let context = format!("message {index} of the batch, counted from 0: {}", error.context);
    StoreError { context, ..error }
}

/// Whether a checkpoint may move, if this is what is stored.
pub(crate) fn expect(checkpoint: &Checkpoint, found: Option<&str>) -> StoreResult<()> {
    if found == checkpoint.expected.as_deref() { Ok(()) } else { Err(moved(checkpoint, found)) }
}

/// The error for a checkpoint that is not where its caller has read it.
pub(crate) fn moved(checkpoint: &Checkpoint, found: Option<&str>) -> StoreError {
    let words = |position: Option<&str>| {
        position.map_or_else(|| "no position".to_owned(), |text| format!("the position {text:?}"))
    };
    let (expected, found) = (words(checkpoint.expected.as_deref()), words(found));
    let context = format!(
        "{DOING}: the checkpoint {:?} has {found}, expected was {expected}: somebody else has moved \
         it, and nothing was written. Read it again and continue from there",
        checkpoint.name
    );
    StoreError::plain(StoreErrorKind::Conflict, context)
}

/// Cuts a batch into parts for one statement each: of so many messages at most, and so many bytes
/// of content, unless a single message has more.
pub(crate) fn parts(batch: &[NewMessage], rows: usize, bytes: usize) -> Vec<&[NewMessage]> {
    let mut parts = Vec::new();
    let mut rest = batch;
    while !rest.is_empty() {
        let mut total = 0;
        let fits = |message: &&NewMessage| {
            total += content_bytes(message);
            total <= bytes
        };
        let count = rest.iter().take(rows).take_while(fits).count().max(1);
        let (part, behind) = rest.split_at(count);
        parts.push(part);
        rest = behind;
    }
    parts
}

fn content_bytes(message: &NewMessage) -> usize {
    message.payload().map_or(0, RawJson::len) + message.headers_json().map_or(0, RawJson::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(sizes: &[usize], rows: usize, bytes: usize) -> Vec<usize> {
        let message = |size: &usize| NewMessage::new("noop", "t").raw("1".repeat(*size));
        let batch: Vec<NewMessage> = sizes.iter().map(message).collect();
        parts(&batch, rows, bytes).iter().map(|part| part.len()).collect()
    }

    #[test]
    fn a_batch_is_cut_by_messages_and_by_bytes() {
        assert!(lengths(&[], 2, 10).is_empty());
        assert_eq!(lengths(&[1, 1, 1, 1, 1], 2, 10), [2, 2, 1]);
        assert_eq!(lengths(&[5, 5, 1, 9, 2], 10, 10), [2, 2, 1]);
        assert_eq!(lengths(&[50, 1, 50], 10, 10), [1, 1, 1]);
    }

    #[test]
    fn a_checkpoint_that_no_store_could_keep_is_refused() {
        let good = Checkpoint { name: "é".repeat(120), position: "7".to_owned(), expected: None };
        assert!(check(&[], Some(&good)).is_ok());
        for bad in [
            Checkpoint { name: String::new(), ..good.clone() },
            Checkpoint { name: "n".repeat(121), ..good.clone() },
            Checkpoint { position: "7\0".to_owned(), ..good.clone() },
            Checkpoint { position: "7".repeat(POSITION_BYTES + 1), ..good.clone() },
            Checkpoint { expected: Some("\0".to_owned()), ..good },
        ] {
            let error = check(&[], Some(&bad)).expect_err("must be refused");
            assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        }
    }
}
