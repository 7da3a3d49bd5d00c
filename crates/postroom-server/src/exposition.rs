//! The forms in which `/metrics` is served: OpenMetrics to whoever asks for it, and otherwise the
//! plain text format of Prometheus, which everything reads.

/// The content type of OpenMetrics, and what names it in an Accept header.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OPENMETRICS_NAME: &str = "application/openmetrics-text";
/// The same of the plain text format.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN_NAME: &str = "text/plain";

/// A form of metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    OpenMetrics,
    Plain,
}

impl Form {
    /// The form that an Accept header asks for. OpenMetrics has to be named; whoever likes the plain
    /// text format better gets that.
    pub(crate) fn wanted(accept: &str) -> Self {
        let liking = |name: &str| {
            let named = accept.split(',').map(str::trim).filter(|one| is_named(one, name));
            named.map(quality).fold(0.0, f64::max)
        };
        let open = liking(OPENMETRICS_NAME);
        if open > 0.0 && open >= liking(PLAIN_NAME) { Self::OpenMetrics } else { Self::Plain }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => OPENMETRICS,
            Self::Plain => PLAIN,
        }
    }

    /// Metrics in this form, from OpenMetrics.
    pub(crate) fn of(self, openmetrics: String) -> String {
        match self {
            Self::OpenMetrics => openmetrics,
            Self::Plain => plain(&openmetrics),
        }
    }
}

fn is_named(range: &str, name: &str) -> bool {
    range.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case(name))
}

/// How much a media range is liked, from 0 to 1. What cannot be read is liked as if it said nothing.
fn quality(range: &str) -> f64 {
    let said = range.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
    said.and_then(|said| said.trim().parse().ok()).unwrap_or(1.0)
}

/// The plain text format calls a counter by the name that its values carry, ending in `_total`, and
/// knows neither units nor an end.
fn plain(openmetrics: &str) -> String {
    let counters: Vec<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|what| {
            let (name, rest) = line.strip_prefix(what)?.split_once(' ')?;
            Some((what, name, rest))
        });
        match described {
            Some((what, name, rest)) => {
                let end = if counters.contains(&name) { "_total" } else { "" };
                text.push_str(&format!("{what}{name}{end} {rest}"));
            }
            None if line.starts_with('#') => continue,
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_served_to_whoever_asks_for_it() {
        for accept in [
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; version=1.0.0",
            "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        ] {
            assert_eq!(Form::wanted(accept), Form::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/plain; version=0.0.4",
            "text/html, */*;q=0.8",
            "application/openmetrics-text;q=0.2, text/plain;q=0.7",
            "application/openmetrics-text;q=0",
        ] {
            assert_eq!(Form::wanted(accept), Form::Plain, "{accept}");
        }
    }

    #[test]
    fn a_counter_is_described_by_the_name_of_its_values() {
        let open = "# HELP sent Messages.\n# TYPE sent counter\nsent_total{to=\"a\"} 3\n\
                    # HELP lag_seconds Lag.\n# TYPE lag_seconds gauge\n# UNIT lag_seconds seconds\n\
                    lag_seconds 1.5\n# EOF\n";
        let text = "# HELP sent_total Messages.\n# TYPE sent_total counter\nsent_total{to=\"a\"} 3\n\
                    # HELP lag_seconds Lag.\n# TYPE lag_seconds gauge\nlag_seconds 1.5\n";
        assert_eq!(Form::Plain.of(open.to_owned()), text);
        assert_eq!(Form::OpenMetrics.of(open.to_owned()), open);
    }
}
