//! A regular expression of a client, which must cost the server neither its memory nor its time.
//!
//! No engine here steps back: a match takes time in proportion to the name and to the compiled
//! pattern, and both are bounded. The look-ahead by which clients exclude events is taken off
//! before, and becomes a second pattern that must not match.

use regex_automata::Input;
use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use std::sync::{Mutex, PoisonError};

/// The longest pattern. The time to compile one grows with it.
const LENGTH_MAX: usize = 4 << 10;
/// The largest compiled pattern.
const COMPILED_MAX: usize = 1 << 20;
/// The largest table of states that matching keeps, to be faster than without.
const TABLE_MAX: usize = 256 << 10;

const SUPPORTED: &str = "look-around is supported only as ^(?!...) at the beginning, and \
                         back-references are not";

/// A pattern that matches where `wanted` does and `excluded` does not.
#[derive(Debug)]
pub(super) struct Pattern {
    wanted: Matcher,
    excluded: Option<Matcher>,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// When it is none, too large or not supported.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        if pattern.len() > LENGTH_MAX {
            return Err(format!("it has more than {LENGTH_MAX} bytes"));
        }
        let structure = structure(pattern)?;
        let Some(split) = split(pattern, &structure)? else {
            return Ok(Self { wanted: Matcher::new(pattern, COMPILED_MAX)?, excluded: None });
        };
        let wanted = Matcher::new(&format!("^(?:{})", split.rest), COMPILED_MAX / 2)?;
        let excluded = Matcher::new(&format!("^(?:{})", split.excluded), COMPILED_MAX / 2)?;
        Ok(Self { wanted, excluded: Some(excluded) })
    }

    pub(super) fn is_match(&self, name: &str) -> bool {
        self.wanted.is_match(name)
            && self.excluded.as_ref().is_none_or(|excluded| !excluded.is_match(name))
    }
}

/// A compiled regular expression, and the memory that it matches with.
#[derive(Debug)]
struct Matcher {
    regex: Regex,
    // One for all threads, as a filter has one reader: a pool would have one for each.
    cache: Mutex<Cache>,
}

impl Matcher {
    fn new(pattern: &str, size: usize) -> Result<Self, String> {
        let config = Config::new()
            .nfa_size_limit(Some(size))
            .hybrid_cache_capacity(TABLE_MAX)
            // Without it, a thousand empty groups take hundreds of megabytes to match.
            .which_captures(WhichCaptures::Implicit);
        let regex = Regex::builder().configure(config).build(pattern).map_err(|e| refusal(&e))?;
        Ok(Self { cache: Mutex::new(regex.create_cache()), regex })
    }

    fn is_match(&self, name: &str) -> bool {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let input = Input::new(name).earliest(true);
        self.regex.search_half_with(&mut cache, &input).is_some()
    }
}

/// Why a pattern does not compile, without the pattern: a status has little room.
fn refusal(error: &BuildError) -> String {
    if error.size_limit().is_some() {
        return format!("it has more than {COMPILED_MAX} bytes once it is compiled");
    }
    let text = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    // What comes before shows the place.
    let reason = text.lines().last().unwrap_or_default();
    format!("{} ({SUPPORTED})", reason.trim_start_matches("error: "))
}

/// A pattern without the look-ahead at its beginning.
struct Split<'a> {
    /// One of these must not match at the beginning.
    excluded: String,
    /// This must.
    rest: &'a str,
}

/// Takes `^(?!X)` off, as often as `(?!X)` stands there.
fn split<'a>(pattern: &'a str, structure: &[(usize, Mark)]) -> Result<Option<Split<'a>>, String> {
    let mut at = 1;
    let mut excluded = Vec::new();
    while pattern.starts_with('^') && pattern[at..].starts_with("(?!") {
        let Some(end) = closing(structure, at) else {
            return Err("a group is not closed".to_owned());
        };
        excluded.push(format!("(?:{})", &pattern[at + 3..end]));
        at = end + 1;
    }
    if excluded.is_empty() {
        return Ok(None);
    }
    let mut depth = 0_usize;
    for (_, mark) in structure.iter().filter(|(index, _)| *index >= at) {
        match mark {
            Mark::Open => depth += 1,
            Mark::Close if depth == 0 => return Err("a group is not opened".to_owned()),
            Mark::Close => depth -= 1,
            // It would be an alternative to the look-ahead, too.
            Mark::Or if depth == 0 => {
                return Err("after ^(?!...), a | must be inside a group".to_owned());
            }
            Mark::Or => {}
        }
    }
    Ok(Some(Split { excluded: excluded.join("|"), rest: &pattern[at..] }))
}

/// Where the group ends that begins at `from`.
fn closing(structure: &[(usize, Mark)], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, mark) in structure.iter().filter(|(index, _)| *index >= from) {
        match mark {
            Mark::Open => depth += 1,
            Mark::Close if depth <= 1 => return Some(*index),
            Mark::Close => depth -= 1,
            Mark::Or => {}
        }
    }
    None
}

/// What gives a pattern its structure.
#[derive(Clone, Copy)]
enum Mark {
    Open,
    Close,
    Or,
}

/// The parentheses and bars of a pattern that stand for themselves.
fn structure(pattern: &str) -> Result<Vec<(usize, Mark)>, String> {
    let mut marks = Vec::new();
    let mut chars = pattern.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '[' => {
                chars.next_if(|(_, c)| *c == '^');
                // At the beginning it is one of the class.
                chars.next_if(|(_, c)| *c == ']');
                skip_class(&mut chars)?;
            }
            '(' if has_verbose_flag(&pattern[index..]) => {
                return Err("the x flag is not supported".to_owned());
            }
            '(' => marks.push((index, Mark::Open)),
            ')' => marks.push((index, Mark::Close)),
            '|' => marks.push((index, Mark::Or)),
            _ => {}
        }
    }
    Ok(marks)
}

/// Goes past the end of a class.
fn skip_class(chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> Result<(), String> {
    while let Some((_, c)) = chars.next() {
        let is_doubled = matches!(c, '&' | '-' | '~') && chars.peek().is_some_and(|n| n.1 == c);
        match c {
            '\\' => {
                chars.next();
            }
            ']' => return Ok(()),
            '[' => return Err("inside a class, [ must be written \\[".to_owned()),
            _ if is_doubled => return Err(format!("inside a class, {c}{c} must be escaped")),
            _ => {}
        }
    }
    Err("a class is not closed".to_owned())
}

/// Whether a group sets the flag by which spaces and comments do not count. Comments may have
/// parentheses.
fn has_verbose_flag(group: &str) -> bool {
    let Some(flags) = group.strip_prefix("(?") else { return false };
    let end = flags.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(flags.len());
    flags[..end].contains('x')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).unwrap().is_match(name)
    }

    #[test]
    fn patterns_of_the_clients_match_as_in_net() {
        let python = r"^(?!(\$.+$|PersistentConfig\d+$|Result$))";
        let table: &[(&str, &[&str], &[&str])] = &[
            (r"^[^\$].*", &["a", "a$", "Überweisung", "\n"], &["$a", "$", ""]),
            ("^[^$].*", &["order-placed", "a$"], &["$metadata", "$>"]),
            (
                python,
                &["", "$", "order", "Results", "aResult", "PersistentConfig", "PersistentConfig1a"],
                &["$metadata", "$>", "PersistentConfig1", "PersistentConfig٣", "Result"],
            ),
            ("^a|b$", &["a", "ax", "xb", "b"], &["xa", "bx", ""]),
            (r"^order-\d+$", &["order-1", "order-٣"], &["order-", "xorder-1", "order-1x"]),
            (r"(?i)^ORDER", &["order", "Order-1"], &["an order"]),
            (r"^\w{1,20}-x$", &["größe-x"], &["a b-x", "-x"]),
            ("^(?!order)", &["invoice", ""], &["order", "orders"]),
            ("^(?!order$).+$", &["orders", "a"], &["order", ""]),
            (r"^(?!.*test)(?!\$)[a-z-]+", &["order-1"], &["a-test", "$a", "1"]),
            ("^(?!a|b)(?:c|d)", &["c", "dx"], &["a", "e"]),
            (r"^(?![(\])]|\))x?", &["x", ""], &["(", ")", "]"]),
            ("^(?!(?i)a)b", &["b"], &["a", "A", "B"]),
        ];
        for (pattern, wanted, unwanted) in table {
            for name in *wanted {
                assert!(matches(pattern, name), "{pattern} must match {name:?}");
            }
            for name in *unwanted {
                assert!(!matches(pattern, name), "{pattern} must not match {name:?}");
            }
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_a_short_text_that_says_so() {
        for (pattern, reason) in [
            ("(?=a)b", "only as ^(?!...)"),
            ("(?!a)b", "only as ^(?!...)"),
            ("^(?=a)b", "only as ^(?!...)"),
            ("a(?<!b)", "only as ^(?!...)"),
            ("^(?!(?!a)b)", "only as ^(?!...)"),
            ("^(?!a)(b(?!c))", "only as ^(?!...)"),
            (r"(a)\1", "back-references"),
            ("^(?!a)b|c", "inside a group"),
            ("^(?!a)*b", "missing expression"),
            ("^(?!a", "not closed"),
            ("^(?!a)b)(c", "not opened"),
            ("^(?!a)(b", "unclosed group"),
            ("[a", "not closed"),
            ("[a-z-[aeiou]]", r"\["),
            ("[a&&b]", "&&"),
            ("(?x) a # (", "x flag"),
            ("^(?!(?i-x: a))", "x flag"),
            ("a\nb\n(", "unclosed group"),
        ] {
            let refusal = Pattern::new(pattern).expect_err(pattern);
            assert!(refusal.contains(reason), "{pattern}: {refusal}");
            assert!(refusal.len() < 200 && !refusal.contains('\n'), "{pattern}: {refusal}");
        }
    }

    #[test]
    fn a_pattern_that_would_take_too_much_is_refused() {
        for pattern in [
            r"(?=\w{9})".repeat(1_600),
            "(?:(?=(a+))a)*b".to_owned(),
            "(a*)*\\1b".to_owned(),
            "((a{99}){99}){99}".to_owned(),
            r"\w{1000}".to_owned(),
            format!("^(?!{})", "(a{999}|b)".repeat(400)),
            r"\w|".repeat(1_300) + "a",
            "(".repeat(1_000),
            "(?:".repeat(500) + "a" + &")".repeat(500),
            "a".repeat(LENGTH_MAX + 1),
        ] {
            assert!(Pattern::new(&pattern).is_err(), "{}", &pattern[..20.min(pattern.len())]);
        }
    }

    #[test]
    fn what_is_accepted_keeps_a_few_megabytes_whatever_it_matches() {
        let name = "ab".repeat(2_000);
        for pattern in [
            // Each of these groups would be remembered, for each state.
            "()".repeat(1_500) + "[ab]*a[ab]{501}c?$",
            "(?:a?){4000}[ab]*$".to_owned(),
            "(?:(?:a|b)*)*$".to_owned(),
            r"^(?!\w{8}-)(?:\w+)+$".to_owned(),
        ] {
            let pattern = Pattern::new(&pattern).unwrap();
            assert!(pattern.is_match(&name));
            for matcher in [Some(&pattern.wanted), pattern.excluded.as_ref()].into_iter().flatten()
            {
                let bytes =
                    matcher.regex.memory_usage() + matcher.cache.lock().unwrap().memory_usage();
                assert!(bytes < 8 << 20, "{bytes}");
            }
        }
    }

    /// A pattern that can be evaluated step by step.
    enum Node {
        Char(char),
        Any,
        End,
        Both(Box<Node>, Box<Node>),
        Either(Box<Node>, Box<Node>),
        Many(Box<Node>),
    }

    impl Node {
        fn random(rng: &mut StdRng, depth: u32) -> Self {
            let mut inner = || Box::new(Self::random(rng, depth - 1));
            let (left, right) =
                if depth == 0 { (None, None) } else { (Some(inner()), Some(inner())) };
            match (rng.random_range(0..8), left, right) {
                (0..3, Some(left), Some(right)) => Self::Both(left, right),
                (3, Some(left), Some(right)) => Self::Either(left, right),
                (4, Some(left), _) => Self::Many(left),
                (5, ..) => Self::End,
                (6, ..) => Self::Any,
                _ => Self::Char(['a', 'b', '$', '('][rng.random_range(0..4)]),
            }
        }

        fn text(&self) -> String {
            match self {
                Self::Char('b') => "[b]".to_owned(),
                Self::Char('(') => "[^])ab$]".to_owned(),
                Self::Char('$') => "\\$".to_owned(),
                Self::Char(c) => c.to_string(),
                Self::Any => ".".to_owned(),
                Self::End => "$".to_owned(),
                Self::Both(left, right) => left.text() + &right.text(),
                Self::Either(left, right) => format!("({}|{})", left.text(), right.text()),
                Self::Many(inner) => format!("(?:{})*", inner.text()),
            }
        }

        /// The places where a match can end that begins at `from`.
        fn ends(&self, name: &[char], from: usize) -> Vec<usize> {
            let mut ends = match self {
                Self::Char(c) if name.get(from) == Some(c) => vec![from + 1],
                Self::Any if from < name.len() => vec![from + 1],
                Self::End if from == name.len() => vec![from],
                Self::Char(_) | Self::Any | Self::End => Vec::new(),
                Self::Both(left, right) => {
                    let middles = left.ends(name, from);
                    middles.into_iter().flat_map(|middle| right.ends(name, middle)).collect()
                }
                Self::Either(left, right) => {
                    [left.ends(name, from), right.ends(name, from)].concat()
                }
                Self::Many(inner) => {
                    let mut reached = vec![from];
                    let mut next = 0;
                    while let Some(at) = reached.get(next).copied() {
                        let more = inner.ends(name, at);
                        reached.extend(more.into_iter().filter(|end| *end > at));
                        reached.sort_unstable();
                        reached.dedup();
                        next += 1;
                    }
                    reached
                }
            };
            ends.sort_unstable();
            ends.dedup();
            ends
        }
    }

    #[test]
    fn the_look_ahead_that_is_taken_off_means_the_same_as_in_its_place() {
        let mut rng = StdRng::seed_from_u64(18);
        let (mut matched, mut tried) = (0, 0);
        for _ in 0..300 {
            let excluded: Vec<Node> =
                (0..rng.random_range(1..4)).map(|_| Node::random(&mut rng, 2)).collect();
            let rest = Node::random(&mut rng, 2);
            let ahead: String =
                excluded.iter().map(|node| format!("(?!{})", node.text())).collect();
            let text = format!("^{ahead}{}", rest.text());
            let pattern = Pattern::new(&text).expect(&text);
            for _ in 0..30 {
                let name: Vec<char> = (0..rng.random_range(0..6))
                    .map(|_| ['a', 'b', '$', '('][rng.random_range(0..4)])
                    .collect();
                let wanted = excluded.iter().all(|node| node.ends(&name, 0).is_empty())
                    && !rest.ends(&name, 0).is_empty();
                let name: String = name.into_iter().collect();
                assert_eq!(pattern.is_match(&name), wanted, "{text} on {name:?}");
                tried += 1;
                matched += u32::from(wanted);
            }
        }
        assert!(matched > tried / 50, "{matched} of {tried}");
    }
}
