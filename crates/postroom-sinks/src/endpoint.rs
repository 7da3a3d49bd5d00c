//! The URL of a server, with what it says about who connects.

use crate::options::Options;
use percent_encoding::percent_decode_str;
use postroom_core::url_per_host;
use std::fmt;
use url::Url;

/// Where a server is. What is secret in its URL is kept apart, and never shown.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// The URL without user and password.
    pub(crate) url: Url,
    /// The user and the password, as they stood in the URL.
    pub(crate) login: Option<Login>,
    port: u16,
}

/// Who connects.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Option<String>,
}

impl Endpoint {
    /// Reads the option `url`, which must be there, name one host and have one of these schemes,
    /// each with its usual port.
    pub(crate) fn read(options: &mut Options, schemes: &[(&str, u16)]) -> Option<Self> {
        let text = Self::read_text(options, schemes)?;
        let parsed = match &url_per_host(&text)[..] {
            [one] => Self::parse(one, schemes),
            _ => Err("names several hosts, and this sink takes one".to_owned()),
        };
        match parsed {
            Ok(endpoint) => Some(endpoint),
            Err(problem) => {
                options.fault(&["url"], problem, None);
                None
            }
        }
    }

    /// The option `url` as it is written.
    pub(crate) fn read_text(options: &mut Options, schemes: &[(&str, u16)]) -> Option<String> {
        let known: Vec<String> = schemes.iter().map(|(scheme, _)| format!("{scheme}://")).collect();
        options.required("url", &format!("a URL that begins with {}", known.join(" or ")))
    }

    pub(crate) fn parse(text: &str, schemes: &[(&str, u16)]) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
        let Some((_, usual_port)) = schemes.iter().find(|(scheme, _)| *scheme == url.scheme())
        else {
            let known: Vec<String> =
                schemes.iter().map(|(scheme, _)| format!("{scheme}://")).collect();
            return Err(format!("must begin with {}", known.join(" or ")));
        };
        let port = url.port().unwrap_or(*usual_port);
        if url.host_str().is_none_or(str::is_empty) {
            return Err("names no host".to_owned());
        }
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(|text| text.into_owned()).map_err(|_| {
                "has a user or password that is not UTF-8 once its % codes are resolved".to_owned()
            })
        };
        let user = decode(url.username())?;
        let password = url.password().map(decode).transpose()?;
        let login = (!user.is_empty() || password.is_some()).then_some(Login { user, password });
        // Neither fails for a URL with a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(Self { url, login, port })
    }

    /// The same scheme, login and path on another server; `None` where that is no host.
    pub(crate) fn at(&self, host: &str, port: u16) -> Option<Self> {
        let mut url = self.url.clone();
        let is_bare_v6 = host.contains(':') && !host.starts_with('[');
        let host = if is_bare_v6 { format!("[{host}]") } else { host.to_owned() };
        url.set_host(Some(&host)).ok()?;
        url.set_port(Some(port)).ok()?;
        (!host.is_empty()).then_some(Self { url, login: self.login.clone(), port })
    }

    pub(crate) fn host(&self) -> &str {
        let host = self.url.host_str().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, which is all of the URL that an error text may show.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.port())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoint, String> {
        Endpoint::parse(text, &[("nats", 4222), ("tls", 4223)])
    }

    #[test]
    fn host_port_and_login_are_taken_apart() {
        let endpoint = parse("nats://ann:p%40ss@broker.example").unwrap();
        assert_eq!((endpoint.host(), endpoint.port()), ("broker.example", 4222));
        assert_eq!(endpoint.url.as_str(), "nats://broker.example");
        let login = endpoint.login.as_ref().unwrap();
        assert_eq!((login.user.as_str(), login.password.as_deref()), ("ann", Some("p@ss")));
        assert_eq!(format!("{endpoint:?}"), "broker.example:4222");
        let endpoint = parse("tls://[::1]:5000").unwrap();
        assert_eq!((endpoint.host(), endpoint.place().as_str()), ("::1", "[::1]:5000"));
        assert!(endpoint.login.is_none());
    }

    #[test]
    fn another_server_is_reached_the_same_way() {
        let endpoint = parse("nats://ann:p@a.example/x").unwrap();
        let other = endpoint.at("b.example", 5).unwrap();
        assert_eq!((other.url.as_str(), other.port()), ("nats://b.example:5/x", 5));
        assert_eq!(other.login.unwrap().user, "ann");
        assert_eq!(endpoint.at("::1", 5).unwrap().place(), "[::1]:5");
        assert!(endpoint.at("", 5).is_none() && endpoint.at("a b", 5).is_none());
    }

    #[test]
    fn other_schemes_and_no_host_are_faults_that_show_nothing() {
        for bad in ["http://secret@host", "nats://", "nats:secret", "secret", ""] {
            let problem = parse(bad).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
