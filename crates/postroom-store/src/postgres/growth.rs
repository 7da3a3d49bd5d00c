//! How large jsonb becomes as text, without making the text.
//!
//! A number such as 1e131071 takes 16 bytes in jsonb and 131,072 as text: 75 kB of them are over
//! 1 GB, which PostgreSQL cannot make, and tries to. Everything else grows sixfold at most.

/// A lower bound, by the numbers in `$column`: the digits behind the point of each, and of those
/// before it their count, rounded down to a power of ten. The text is at most some ten times as
/// long, plus what is no number.
macro_rules! digits {
    ($column:literal) => {
        concat!(
            "(SELECT coalesce(sum(scale(n.x::numeric) + power(10, width_bucket(abs(n.x::numeric), \
             ARRAY[1e10, 1e100, 1e1000, 1e10000, 1e100000]))), 0) \
             FROM jsonb_path_query(",
            $column,
            ", 'strict $.** ? (@.type() == \"number\")') AS n (x))"
        )
    };
}

/// `$column` as text, unless its numbers alone have more than `$limit` digits; `$otherwise` then.
macro_rules! text_within {
    ($column:literal, $limit:literal, $otherwise:literal) => {
        concat!(
            "CASE WHEN ",
            $crate::postgres::growth::digits!($column),
            " <= ",
            $limit,
            " THEN ",
            $column,
            "::text ELSE ",
            $otherwise,
            " END"
        )
    };
}

pub(super) use {digits, text_within};
