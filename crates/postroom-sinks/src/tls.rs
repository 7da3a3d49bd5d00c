//! TLS for the clients of brokers.

use rustls::crypto::ring;
use std::error::Error;

/// Two TLS providers in one program leave rustls without a default. Whoever comes first sets it,
/// and that is an answer too.
pub(crate) fn choose_provider() {
    let _ = ring::default_provider().install_default();
}

/// Whether an error comes from TLS itself: a certificate that nobody vouches for, or a server
/// that does not speak it. That is for the operator to settle.
pub(crate) fn is_behind(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return true;
        }
        // An I/O error shows the source of what it wraps, and not that itself.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if wrapped.is_some_and(|wrapped| wrapped.is::<rustls::Error>()) {
            return true;
        }
        cause = error.source();
    }
    false
}
