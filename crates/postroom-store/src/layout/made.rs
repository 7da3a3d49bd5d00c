//! What the ledgers of all dialects are made of.

/// Names what was made: a relay whose layout makes something else does not begin.
pub(crate) fn fingerprint(made: &str) -> String {
    // FNV-1a over 64 bits: what counts is that a changed layout is noticed, not that nobody can forge one.
    let hash = made.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The parts of 0001, and whom each is for.
pub(crate) fn parts(migration: &str) -> Vec<(&str, &str)> {
    const MARK: &str = "-- layout: ";
    let mut parts = Vec::new();
    let mut rest = migration;
    while let Some((_, after)) = rest.split_once(MARK) {
        let Some((audience, body)) = after.split_once('\n') else { break };
        let end = body.find(MARK).unwrap_or(body.len());
        parts.push((audience.trim(), &body[..end]));
        rest = body;
    }
    parts
}
