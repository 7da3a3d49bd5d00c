//! Finding the primary that Sentinels watch over.
//!
//! They are asked each time that a connection is made: after a failover the next connection leads
//! to the new primary.

use super::classify::{Failure, classify, classify_connect};
use super::link::{self, Link};
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use ::redis::{RedisError, Role, TlsCertificates, cmd};
use postroom_core::Outcome;
use std::time::Duration;

/// Asks one Sentinel after the other, and connects to the primary that it names.
pub(super) async fn connect(
    sentinels: &Endpoints,
    primary: &str,
    limit: Duration,
    certificates: Option<TlsCertificates>,
) -> Result<Link, Outcome> {
    let connecting = async |sentinel: Endpoint, limit: Duration| {
        // Half of the time for the Sentinel, and half for the primary.
        let server = ask(&sentinel, primary, limit / 2, certificates.clone()).await?;
        connect_to_primary(&server, primary, limit / 2, certificates.clone()).await
    };
    sentinels.connect(limit, connecting).await
}

/// Where the primary is.
async fn ask(
    sentinel: &Endpoint,
    primary: &str,
    limit: Duration,
    certificates: Option<TlsCertificates>,
) -> Result<Endpoint, Outcome> {
    let place = sentinel.place();
    let mut itself = sentinel.clone();
    // Sentinels have no databases.
    itself.url.set_path("");
    // Most of them ask for no login, and refuse one. Those that do have the same as the servers.
    itself.login = None;
    let mut asked = named(&itself, primary, limit, certificates.clone()).await;
    let asks_for_login = |error: &RedisError| error.code() == Some("NOAUTH");
    if asked.as_ref().is_err_and(asks_for_login) && sentinel.login.is_some() {
        itself.login.clone_from(&sentinel.login);
        asked = named(&itself, primary, limit, certificates).await;
    }
    let (host, port) = match asked {
        Ok(Some(address)) => address,
        Ok(None) => {
            return Err(Outcome::refuse(format!(
                "the Sentinel at {place} monitors no primary `{primary}`: correct the \
                 integration's `url`"
            )));
        }
        Err(error) => return Err(classify_connect(&place, &error)),
    };
    sentinel.at(&host, port).ok_or_else(|| {
        Outcome::retry(format!("the Sentinel at {place} does not say where `{primary}` is"))
    })
}

async fn named(
    sentinel: &Endpoint,
    primary: &str,
    limit: Duration,
    certificates: Option<TlsCertificates>,
) -> Result<Option<(String, u16)>, RedisError> {
    let mut connection = link::one(sentinel, limit, certificates).await?;
    let mut ask = cmd("SENTINEL");
    ask.arg("get-master-addr-by-name").arg(primary).query_async(&mut connection).await
}

/// A server that was a primary a moment ago may still answer at its address.
async fn connect_to_primary(
    server: &Endpoint,
    primary: &str,
    limit: Duration,
    certificates: Option<TlsCertificates>,
) -> Result<Link, Outcome> {
    let place = server.place();
    let connected = link::one(server, limit, certificates).await;
    let mut connection = connected.map_err(|error| classify_connect(&place, &error))?;
    match cmd("ROLE").query_async(&mut connection).await {
        Ok(Role::Primary { .. }) => Ok(Link::One(connection)),
        // A replica, or whatever else.
        Ok(_) => Err(Outcome::retry(format!("{place} is not the primary `{primary}` any more"))),
        // A user without the right to ask: a replica answers the first write with READONLY.
        Err(error) if error.code() == Some("NOPERM") => Ok(Link::One(connection)),
        Err(error) => Err(classify(&place, true, &Failure::of(&error))),
    }
}
