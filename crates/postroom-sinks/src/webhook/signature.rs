//! Signatures by [Standard Webhooks](https://www.standardwebhooks.com): a receiver can tell that a
//! request is ours, unchanged, and of now.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use ring::hmac;
use ring::signature::Ed25519KeyPair;
use std::fmt;
use std::sync::Arc;

/// Base64 as the specification has it; a secret that lost its padding is still the same secret.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// One secret, ready to sign with.
#[derive(Clone)]
enum Key {
    /// `whsec_…`: HMAC-SHA256, known to both sides.
    Shared(hmac::Key),
    /// `whsk_…`: ed25519, of which the receiver knows the public half.
    Private(Arc<Ed25519KeyPair>),
}

/// The secrets of one integration. While they are rotated there are several, and each signs.
#[derive(Clone, Default)]
pub(super) struct Signing(Vec<Key>);

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Signing {
    /// Adds a secret.
    ///
    /// # Errors
    /// What is wrong with it, without it.
    pub(super) fn add(&mut self, secret: &str) -> Result<(), &'static str> {
        let key = if let Some(encoded) = secret.strip_prefix("whsec_") {
            let bytes = BASE64.decode(encoded).map_err(|_| "is no base64 after `whsec_`")?;
            if bytes.is_empty() {
                return Err("is empty after `whsec_`");
            }
            Key::Shared(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        } else if let Some(encoded) = secret.strip_prefix("whsk_") {
            let bytes = BASE64.decode(encoded).map_err(|_| "is no base64 after `whsk_`")?;
            Key::Private(Arc::new(private(&bytes)?))
        } else {
            return Err("must begin with `whsec_` (HMAC-SHA256) or `whsk_` (ed25519)");
        };
        self.0.push(key);
        Ok(())
    }

    /// What goes into `webhook-signature`: a signature by each secret; `None` without any.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let content = format!("{id}.{timestamp}.{body}");
        let signatures: Vec<String> = self
            .0
            .iter()
            .map(|key| match key {
                Key::Shared(key) => {
                    format!("v1,{}", BASE64.encode(hmac::sign(key, content.as_bytes())))
                }
                Key::Private(key) => {
                    format!("v1a,{}", BASE64.encode(key.sign(content.as_bytes())))
                }
            })
            .collect();
        Some(signatures.join(" "))
    }
}

/// A private key as its seed, or as the seed followed by the public key.
fn private(bytes: &[u8]) -> Result<Ed25519KeyPair, &'static str> {
    let key = match bytes.len() {
        32 => Ed25519KeyPair::from_seed_unchecked(bytes),
        64 => Ed25519KeyPair::from_seed_and_public_key(&bytes[..32], &bytes[32..]),
        _ => return Err("must hold 32 or 64 bytes after `whsk_`"),
    };
    key.map_err(|_| "is no ed25519 key after `whsk_`: its halves do not belong together")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ED25519, KeyPair as _, UnparsedPublicKey};

    fn signing(secrets: &[&str]) -> Signing {
        let mut signing = Signing::default();
        for secret in secrets {
            signing.add(secret).unwrap();
        }
        signing
    }

    /// The example of the specification's own libraries.
    #[test]
    fn a_shared_secret_signs_as_the_specification_says() {
        let signing = signing(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
        let signed =
            signing.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_private_key_signs_for_its_public_half() {
        let seed = [7; 32];
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        let public = pair.public_key().as_ref();
        let short = format!("whsk_{}", BASE64.encode(seed));
        let long = format!("whsk_{}", BASE64.encode([&seed, public].concat()));
        let signed = signing(&[&short]).sign("m", 1, "{}").unwrap();
        assert_eq!(signing(&[&long]).sign("m", 1, "{}").unwrap(), signed);
        let signature = BASE64.decode(signed.strip_prefix("v1a,").unwrap()).unwrap();
        UnparsedPublicKey::new(&ED25519, public).verify(b"m.1.{}", &signature).unwrap();
    }

    #[test]
    fn fault_37_every_secret_signs_while_they_are_rotated() {
        let (old, new) =
            ("whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCE", "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldyE=");
        let both = signing(&[new, old]).sign("m", 1, "{}").unwrap();
        let each = [new, old].map(|secret| signing(&[secret]).sign("m", 1, "{}").unwrap());
        assert_eq!(both, each.join(" "));
        assert_eq!(Signing::default().sign("m", 1, "{}"), None);
    }

    #[test]
    fn a_bad_secret_is_refused_without_being_shown() {
        let halves = format!("whsk_{}", BASE64.encode([7; 64]));
        for bad in
            ["", "hunter2", "whsec_", "whsec_!hunter2!", "whsk_aHVudGVyMg==", "whpk_AAAA", &halves]
        {
            let problem = Signing::default().add(bad).unwrap_err();
            assert!(!problem.contains("hunter2") && !problem.contains("aHVu"), "{problem}");
        }
    }

    #[test]
    fn fault_38_debug_shows_how_many_secrets_there_are_and_none_of_them() {
        let shown = format!("{:?}", signing(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]));
        assert_eq!(shown, "1 secrets");
    }
}
