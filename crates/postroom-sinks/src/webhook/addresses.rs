//! Which addresses a webhook may be sent to.
//!
//! Whoever may choose a URL could otherwise make the relay talk to what only the relay can reach:
//! its own machine, the network behind it, and the cloud's metadata service. So only addresses of
//! the public internet are open, and what a deployment needs besides is listed.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::Host;

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: [u16; 4], last: [u16; 4], prefix: u8) -> Ipv6Net {
    let ([a, b, c, d], [e, f, g, h]) = (first, last);
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// The networks of IPv4 that are not the public internet, or that answer with secrets.
const REFUSED_V4: [(Ipv4Net, &str); 17] = [
    (v4(0, 0, 0, 0, 8), "an unspecified address"),
    (v4(10, 0, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 0, 10), "a provider's inner address"),
    (v4(127, 0, 0, 0, 8), "a loopback address"),
    (v4(168, 63, 129, 16, 32), "a cloud's metadata address"),
    (v4(169, 254, 0, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 0, 12), "a private address"),
    (v4(192, 0, 0, 0, 24), "a reserved address"),
    (v4(192, 0, 2, 0, 24), "an address for documentation"),
    (v4(192, 88, 99, 0, 24), "a reserved address"),
    (v4(192, 168, 0, 0, 16), "a private address"),
    (v4(198, 18, 0, 0, 15), "an address for benchmarks"),
    (v4(198, 51, 100, 0, 24), "an address for documentation"),
    (v4(203, 0, 113, 0, 24), "an address for documentation"),
    (v4(224, 0, 0, 0, 4), "a multicast address"),
    (v4(255, 255, 255, 255, 32), "the broadcast address"),
    (v4(240, 0, 0, 0, 4), "a reserved address"),
];

/// The one part of IPv6 that is the public internet.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0], [0; 4], 3);

/// What is not, by name. Some of it holds an IPv4 address, which a gateway would take out: such
/// forms are refused whole, whatever the address within.
const REFUSED_V6: [(Ipv6Net, &str); 14] = [
    (v6([0; 4], [0; 4], 128), "an unspecified address"),
    (v6([0; 4], [0, 0, 0, 1], 128), "a loopback address"),
    (v6([0; 4], [0, 0xffff, 0, 0], 96), "an IPv4 address mapped into IPv6"),
    (v6([0; 4], [0xffff, 0, 0, 0], 96), "an IPv4 address translated into IPv6"),
    (v6([0; 4], [0; 4], 96), "an IPv4 address within IPv6"),
    (v6([0x64, 0xff9b, 0, 0], [0; 4], 96), "an IPv4 address behind NAT64"),
    (v6([0x64, 0xff9b, 1, 0], [0; 4], 48), "an IPv4 address behind NAT64"),
    (v6([0x2001, 0, 0, 0], [0; 4], 23), "a reserved address"),
    (v6([0x2001, 0xdb8, 0, 0], [0; 4], 32), "an address for documentation"),
    (v6([0x2002, 0, 0, 0], [0; 4], 16), "an IPv4 address behind 6to4"),
    (v6([0x3fff, 0, 0, 0], [0; 4], 20), "an address for documentation"),
    (v6([0xfc00, 0, 0, 0], [0; 4], 7), "a private address"),
    (v6([0xfe80, 0, 0, 0], [0; 4], 10), "a link-local address"),
    (v6([0xff00, 0, 0, 0], [0; 4], 8), "a multicast address"),
];

/// Why an address is none of the public internet; `None` if it is one.
fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            REFUSED_V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, name)| *name)
        }
        IpAddr::V6(address) => {
            let known = REFUSED_V6.iter().find(|(net, _)| net.contains(&address));
            let rest = (!PUBLIC_V6.contains(&address)).then_some("a reserved address");
            known.map(|(_, name)| *name).or(rest)
        }
    }
}

/// An address that webhooks are not sent to.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{host} is at {address}, {why}, and webhooks go to the public internet only: if it is meant, \
     list its network in `allow_addresses`"
)]
pub(super) struct AddressRefused {
    pub(super) host: String,
    pub(super) address: IpAddr,
    pub(super) why: &'static str,
}

/// The networks that a deployment opens besides the public internet.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed(Vec<IpNet>);

impl Allowed {
    /// Adds a network such as `10.1.0.0/16`, or one address.
    pub(super) fn add(&mut self, text: &str) -> Result<(), &'static str> {
        let one = |address: IpAddr| IpNet::from(address);
        let network = text.parse().or_else(|_| text.parse().map(one)).map_err(
            |_: std::net::AddrParseError| {
                "must be a network such as \"10.1.0.0/16\" or \"fd00::/8\", or an address"
            },
        )?;
        self.0.push(network);
        Ok(())
    }

    /// Whether `host` may be reached at `address`.
    pub(super) fn check(&self, host: &str, address: IpAddr) -> Result<(), AddressRefused> {
        match refusal(address) {
            Some(why) if !self.0.iter().any(|network| network.contains(&address)) => {
                Err(AddressRefused { host: host.to_owned(), address, why })
            }
            _ => Ok(()),
        }
    }

    /// Whether a URL may be reached as far as it shows its address by itself. Names are looked
    /// up, and checked, with each connection.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), AddressRefused> {
        let host = url.host_str().unwrap_or_default();
        let address: IpAddr = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            Some(Host::Domain(name)) if is_localhost(name) => Ipv4Addr::LOCALHOST.into(),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        self.check(host, address)
    }
}

/// Names that mean this machine, whatever a resolver says.
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &[&str], address: &str) -> Result<(), AddressRefused> {
        let mut networks = Allowed::default();
        for network in allowed {
            networks.add(network).unwrap();
        }
        networks.check("host", address.parse().unwrap())
    }

    #[test]
    fn only_the_public_internet_is_open() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:10.0.0.1",
            "64:ff9b::",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00::",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(check(&[], address).is_err(), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2600::1",
            "2a00:1450::1",
            "2003::1",
        ] {
            assert_eq!(check(&[], address), Ok(()), "{address}");
        }
    }

    #[test]
    fn what_is_listed_is_open_and_nothing_else() {
        assert_eq!(check(&["10.1.0.0/16"], "10.1.2.3"), Ok(()));
        assert!(check(&["10.1.0.0/16"], "10.2.0.0").is_err());
        assert!(check(&["10.1.0.0/16"], "::ffff:10.1.2.3").is_err());
        assert_eq!(check(&["10.1.2.3", "::1"], "::1"), Ok(()));
        assert_eq!(check(&["10.1.2.3"], "10.1.2.3"), Ok(()));
        assert_eq!(check(&["fd00::/8"], "fd00::5"), Ok(()));
        assert!(check(&["0.0.0.0/0"], "fd00::5").is_err());
        for rubbish in ["", "10.1.0.0/33", "10.1", "partner.example", "10.0.0.0/-1", "::/129"] {
            assert!(Allowed::default().add(rubbish).is_err(), "{rubbish}");
        }
    }
}
