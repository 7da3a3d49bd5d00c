//! Looks names up, and gives the client only addresses that were vetted.
//!
//! The client connects to exactly what it gets from here, so a name that changes its address
//! between a check and a connection gains nothing: there is no time between the two.

use super::addresses::Allowed;
use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where the addresses of a name come from.
#[async_trait]
pub(super) trait Lookup: Send + Sync + 'static {
    async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own resolver.
pub(super) struct System;

#[async_trait]
impl Lookup for System {
    async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// The resolver of a client.
pub(super) struct Vetting {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) allowed: Allowed,
}

impl Resolve for Vetting {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, allowed) = (Arc::clone(&self.lookup), self.allowed.clone());
        Box::pin(async move {
            let found = lookup.addresses(name.as_str()).await?;
            let (mut vetted, mut refused) = (Vec::new(), None);
            for address in found {
                match allowed.check(name.as_str(), address) {
                    // The client puts the URL's port in the place of 0.
                    Ok(()) => vetted.push(SocketAddr::new(address, 0)),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            match refused {
                Some(refusal) if vetted.is_empty() => Err(refusal.into()),
                _ => Ok(Box::new(vetted.into_iter()) as Addrs),
            }
        })
    }
}
