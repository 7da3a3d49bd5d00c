//! Several hosts in one URL, written the same way for every server: `nats://app@a:4222,b:4222`.

/// The URL once for each host that it names, in their order: `s://u:p@a:1,b:2/d?q` stands for
/// `s://u:p@a:1/d?q` and `s://u:p@b:2/d?q`. A URL with one host, or a text that is no URL, comes
/// back as it is.
#[must_use]
pub fn url_per_host(url: &str) -> Vec<String> {
    let Some(start) = url.find("://").map(|at| at + 3) else { return vec![url.to_owned()] };
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    // A password may hold commas, and where it is written carelessly also an `@`.
    let hosts = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let (before, after) = (&url[..hosts], &url[end..]);
    url[hosts..end].split(',').map(|host| format!("{before}{host}{after}")).collect()
}

#[cfg(test)]
mod tests {
    use super::url_per_host;

    #[test]
    fn every_host_gets_the_rest_of_the_url() {
        for (url, expected) in [
            ("nats://a", &["nats://a"][..]),
            ("nats://a:1,b", &["nats://a:1", "nats://b"]),
            (
                "mysql://u:p,q@[::1]:1,b:2/d?x=1,2",
                &["mysql://u:p,q@[::1]:1/d?x=1,2", "mysql://u:p,q@b:2/d?x=1,2"],
            ),
            ("amqp://u:p@q@a,b/%2F", &["amqp://u:p@q@a/%2F", "amqp://u:p@q@b/%2F"]),
            ("redis://a,b?x=c@d,e", &["redis://a?x=c@d,e", "redis://b?x=c@d,e"]),
            ("a,b", &["a,b"]),
            ("", &[""]),
        ] {
            assert_eq!(url_per_host(url), expected, "{url}");
        }
    }

    #[test]
    fn a_missing_host_stays_missing() {
        assert_eq!(url_per_host("nats://a,,b/x"), ["nats://a/x", "nats:///x", "nats://b/x"]);
    }
}
