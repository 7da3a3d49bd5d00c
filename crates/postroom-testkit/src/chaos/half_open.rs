//! Connections on which nobody answers any more.

use crate::Proxy;
use std::time::Duration;

/// Several claim times, and longer than a program should wait for an answer.
const TIME: Duration = Duration::from_secs(12);

/// Makes all connections through these proxies half open, and resets them in the end: one that
/// nobody uses is never missed, and the server would keep it for ever.
pub(super) async fn strike(proxies: &[Proxy]) {
    for proxy in proxies {
        proxy.half_open();
    }
    tokio::time::sleep(TIME).await;
    for proxy in proxies {
        proxy.reset_half_open();
    }
}
