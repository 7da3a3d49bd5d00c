//! Which ids BullMQ allows for jobs.

/// Why BullMQ would refuse this id, as `Queue.add` in Node does; `None` when it is fine.
pub(super) fn fault(id: &str) -> Option<&'static str> {
    if id.is_empty() {
        return Some("a job needs an id");
    }
    if id.contains(':') {
        return Some("BullMQ allows no colon in the id of a job");
    }
    // BullMQ counts jobs without an id up from 1, and would give a number to two of them.
    let digits = id.strip_prefix('-').unwrap_or(id);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some("BullMQ allows no number as the id of a job");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_colons_are_refused() {
        for bad in ["", "7", "-7", "a:b", "a:b:c", "0019"] {
            assert!(fault(bad).is_some(), "{bad}");
        }
        for good in ["0199-ab", "a", "7-2", "0199f6a4-6b1c-7c5e-9d0a-0242ac120002-2"] {
            assert!(fault(good).is_none(), "{good}");
        }
    }
}
