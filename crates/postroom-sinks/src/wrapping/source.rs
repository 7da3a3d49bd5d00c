//! Where an event comes from, as a CloudEvent must say it: a URI reference that is not empty.

use percent_encoding::percent_encode_byte;

/// What stands for a message that does not say where it comes from.
const UNKNOWN: &str = "postroom";

/// The text itself where it is a URI reference (RFC 3986), and with percent-encodings in place of
/// what may not stand in one where it is not. A name such as `billing` is one.
pub(super) fn source(text: Option<&str>) -> String {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return UNKNOWN.to_owned() };
    let (before, fragment) = match text.split_once('#') {
        Some((before, fragment)) => (before, Some(fragment)),
        None => (text, None),
    };
    let mut reference = String::with_capacity(text.len());
    let scheme = before.split_once(':').map(|(scheme, _)| scheme).filter(|text| is_scheme(text));
    let rest = &before[scheme.map_or(0, |scheme| scheme.len() + 1)..];
    if let Some(scheme) = scheme {
        reference.push_str(scheme);
        reference.push(':');
    }
    let ends = |from: usize, marks: &[char]| {
        rest[from..].find(marks).map_or(rest.len(), |found| from + found)
    };
    let host = if rest.starts_with("//") { ends(2, &['/', '?']) } else { 0 };
    // Without a scheme, a colon in the first part of a path would be taken for the end of one.
    let first = if scheme.is_none() && host == 0 { ends(0, &['/', '?']) } else { host };
    encode(&mut reference, &rest[..host], "/:@[]");
    encode(&mut reference, &rest[host..first], "@");
    encode(&mut reference, &rest[first..], "/:@?");
    if let Some(fragment) = fragment {
        reference.push('#');
        encode(&mut reference, fragment, "/:@?");
    }
    reference
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Appends `text`; what stands for itself everywhere, encodings, and `marks` are kept.
fn encode(reference: &mut String, text: &str, marks: &str) {
    let bytes = text.as_bytes();
    for (place, &byte) in bytes.iter().enumerate() {
        let next = bytes.get(place + 1..place + 3);
        let is_encoding =
            byte == b'%' && next.is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit));
        let is_kept = byte.is_ascii_alphanumeric()
            || b"-._~!$&'()*+,;=".contains(&byte)
            || marks.as_bytes().contains(&byte);
        if is_kept || is_encoding {
            reference.push(char::from(byte));
        } else {
            reference.push_str(percent_encode_byte(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_uri_reference_is_kept() {
        for good in [
            "billing",
            "/shop/eu",
            "//shop.example/eu",
            "https://user@shop.example:8080/a;b=c?d=/e?#f",
            "http://[2001:db8::1]:80/",
            "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
            "mailto:cncf-wg-serverless@lists.cncf.io",
            "1-555-123-4567",
            "a/b:c",
            "100%25",
            "?a:b",
        ] {
            assert_eq!(source(Some(good)), good);
        }
    }

    #[test]
    fn what_is_none_is_encoded_and_nothing_has_a_name_of_its_own() {
        for (bad, good) in [
            ("order service", "order%20service"),
            ("my shop:orders", "my%20shop%3Aorders"),
            ("1shop:orders", "1shop%3Aorders"),
            ("App\\Billing", "App%5CBilling"),
            ("b\u{fc}ro", "b%C3%BCro"),
            ("100%", "100%25"),
            ("a[0]", "a%5B0%5D"),
            ("a#b#c", "a#b%23c"),
            ("\r\n", "%0D%0A"),
        ] {
            assert_eq!(source(Some(bad)), good);
        }
        for empty in [None, Some("")] {
            assert_eq!(source(empty), "postroom");
        }
    }
}
