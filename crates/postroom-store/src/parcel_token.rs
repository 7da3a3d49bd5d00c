//! Which kind of claim a token is of, where settling must know that without a look.

use postroom_core::Token;
use uuid::Uuid;

/// A claim on parcels is told from one on deliveries by its token, whoever is asked to settle it.
pub(crate) fn parcel_token() -> Token {
    Token(uuid::Builder::from_custom_bytes(*Uuid::new_v4().as_bytes()).into_uuid())
}

/// Whether a claim holds parcels.
pub(crate) fn holds_parcels(token: Token) -> bool {
    token.0.get_version_num() == 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_what_a_claim_holds() {
        assert!(holds_parcels(parcel_token()));
        assert!(!holds_parcels(Token::random()));
    }
}
