//! Just enough understanding of SQL text to put statements in other words.

/// Where the statement that begins here ends: at the parenthesis around it, or with the text.
pub(super) fn end_of_block(text: &str) -> usize {
    let mut end = text.len();
    walk(text, |at, depth, c| {
        let is_over = depth == 0 && (c == ')' || c == ';');
        if is_over {
            end = at;
        }
        !is_over
    });
    end
}

/// Cuts in two at the first such word that stands in no parentheses.
pub(super) fn split_at_word(text: &str, word: &str) -> (String, Option<String>) {
    let mut found = None;
    walk(text, |at, depth, _| {
        let before = text[..at].chars().next_back().is_none_or(char::is_whitespace);
        let is_word = depth == 0
            && before
            && text[at..].strip_prefix(word).is_some_and(|rest| {
                rest.chars().next().is_none_or(|c| c.is_whitespace() || c == '(')
            })
            // IS DISTINCT FROM is no clause.
            && !text[..at].trim_end().ends_with("DISTINCT");
        if is_word {
            found = Some(at);
        }
        !is_word
    });
    match found {
        None => (text.to_owned(), None),
        Some(at) => (text[..at].to_owned(), Some(text[at + word.len()..].to_owned())),
    }
}

pub(super) fn split_at_commas(text: &str) -> Vec<String> {
    let mut cuts = Vec::new();
    walk(text, |at, depth, c| {
        if depth == 0 && c == ',' {
            cuts.push(at);
        }
        true
    });
    let mut parts = Vec::new();
    let mut begin = 0;
    for cut in cuts {
        parts.push(text[begin..cut].to_owned());
        begin = cut + 1;
    }
    parts.push(text[begin..].to_owned());
    parts
}

/// Goes through what is neither quoted nor a comment, as long as `look` says so. The depth is that before the
/// character.
fn walk(text: &str, mut look: impl FnMut(usize, usize, char) -> bool) {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c == '\'' {
            at += 1 + rest[1..].find('\'').map_or(rest.len() - 1, |end| end + 1);
            continue;
        }
        if rest.starts_with("--") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        if !look(at, depth, c) {
            return;
        }
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += c.len_utf8();
    }
}

pub(super) fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.find("--") {
        // No quoted text of these statements has two hyphens.
        Some(at) => line[..at].trim_end(),
        None => line,
    });
    lines.filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n")
}

pub(super) fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Puts something behind every look-up of a message by its id: `{alias}.id = ANY (…)`, and `{alias}.id = x`.
/// `behind` gets what it is compared with.
pub(super) fn behind_look_ups(
    text: &str,
    look_up: &str,
    behind: impl Fn(&str, bool) -> String,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(look_up) {
        let is_name_before = rest[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
        let (before, after) = rest.split_at(at + look_up.len());
        out.push_str(before);
        rest = after;
        if is_name_before {
            continue;
        }
        let (length, value, is_list) = if let Some(list) = after.strip_prefix("ANY (") {
            let inner = end_of_block(list);
            ("ANY (".len() + inner + 1, &list[..inner], true)
        } else {
            let end = after.find(|c: char| c.is_whitespace() || c == ')' || c == ';');
            let end = end.unwrap_or(after.len());
            (end, &after[..end], false)
        };
        out.push_str(after.get(..length).unwrap_or(after));
        out.push_str(&behind(value, is_list));
        rest = after.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}
