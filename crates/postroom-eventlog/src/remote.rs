//! Asking a running server for what the clients of KurrentDB have no call for.

use crate::proto::operations::StartScavengeReq;
use crate::proto::operations::operations_client::OperationsClient;
use crate::proto::operations::start_scavenge_req::Options;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tonic::Request;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use url::Url;

/// How long connecting and the answer may take.
const LIMIT: Duration = Duration::from_secs(10);
const SCHEMES: [&str; 2] = ["esdb", "kurrentdb"];

/// Why a server could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The connection string is none.
    #[error(
        "the connection string: {0}. It looks like esdb://user:password@host:2113?tls=false, where \
         user and password may be left out; with TLS, tlsCaFile=FILE names whom to trust"
    )]
    Url(String),
    /// The file of certificates cannot be read.
    #[error("reading {}", .path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server cannot be reached.
    #[error("connecting to {host}{}", if *.is_tls { " with TLS (tls=false is for a server without)" } else { "" })]
    Connect {
        /// The server.
        host: String,
        /// Whether the connection was to be encrypted.
        is_tls: bool,
        /// Why.
        source: tonic::transport::Error,
    },
    /// The server refused.
    #[error("{host} refused: {}", .status.message())]
    Refused {
        /// The server.
        host: String,
        /// Its answer.
        status: Box<tonic::Status>,
    },
}

/// Asks a server to scavenge. It goes on by itself; the answer is the id that its log tells.
///
/// # Errors
/// See [`RemoteError`].
pub async fn start_scavenge(connection_string: &str) -> Result<String, RemoteError> {
    let target = Target::parse(connection_string)?;
    let channel = target.endpoint()?.connect().await;
    let channel = channel.map_err(|source| target.unreachable(source))?;
    let options = Options { thread_count: 1, start_from_chunk: 0 };
    let mut request = Request::new(StartScavengeReq { options: Some(options) });
    request.set_timeout(LIMIT);
    if let Some((name, password)) = &target.user {
        let value = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let value = value.parse().map_err(|_| RemoteError::Url("its user".to_owned()))?;
        request.metadata_mut().insert("authorization", value);
    }
    let answer = OperationsClient::new(channel).start_scavenge(request).await;
    let answer = answer
        .map_err(|status| RemoteError::Refused { host: target.host, status: Box::new(status) })?;
    Ok(answer.into_inner().scavenge_id)
}

/// What a connection string says.
struct Target {
    host: String,
    user: Option<(String, String)>,
    is_tls: bool,
    authority: Option<PathBuf>,
}

impl Target {
    fn parse(text: &str) -> Result<Self, RemoteError> {
        let wrong = |what: &str| RemoteError::Url(what.to_owned());
        let url = Url::parse(text).map_err(|error| RemoteError::Url(error.to_string()))?;
        if !SCHEMES.contains(&url.scheme().trim_end_matches("+discover")) {
            return Err(wrong("it begins with esdb:// or kurrentdb://"));
        }
        let name = url.host_str().filter(|host| !host.is_empty());
        let name = name.ok_or_else(|| wrong("it names no host"))?;
        let decoded = |text: &str| {
            percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
        };
        let user = (!url.username().is_empty())
            .then(|| (decoded(url.username()), decoded(url.password().unwrap_or_default())));
        // As in the clients: encrypted unless it says otherwise.
        let (mut is_tls, mut authority) = (true, None);
        for (key, value) in url.query_pairs() {
            match key.to_ascii_lowercase().as_str() {
                "tls" if value.eq_ignore_ascii_case("true") => is_tls = true,
                "tls" if value.eq_ignore_ascii_case("false") => is_tls = false,
                "tls" => return Err(wrong("tls is true or false")),
                "tlscafile" => authority = Some(PathBuf::from(value.into_owned())),
                // What else clients take does not matter for one call.
                _ => {}
            }
        }
        let host = format!("{name}:{}", url.port().unwrap_or(2113));
        Ok(Self { host, user, is_tls, authority })
    }

    fn unreachable(&self, source: tonic::transport::Error) -> RemoteError {
        RemoteError::Connect { host: self.host.clone(), is_tls: self.is_tls, source }
    }

    fn endpoint(&self) -> Result<Endpoint, RemoteError> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let failed = |source| self.unreachable(source);
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.host));
        let endpoint = endpoint.map_err(failed)?.connect_timeout(LIMIT);
        if !self.is_tls {
            return Ok(endpoint);
        }
        let mut tls = ClientTlsConfig::new().with_enabled_roots();
        if let Some(path) = &self.authority {
            let pem = std::fs::read(path)
                .map_err(|source| RemoteError::Certificates { path: path.clone(), source })?;
            tls = tls.ca_certificate(Certificate::from_pem(pem));
        }
        endpoint.tls_config(tls).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_read_as_the_clients_read_them() {
        let text = "esdb://ad%40min:p%3Aw@node:2114?tls=true&tlsCaFile=/ca.pem&keepAlive=1";
        let target = Target::parse(text).ok().unwrap();
        assert_eq!(target.host, "node:2114");
        assert_eq!(target.user, Some(("ad@min".to_owned(), "p:w".to_owned())));
        assert_eq!((target.is_tls, target.authority), (true, Some("/ca.pem".into())));
        let plain = Target::parse("kurrentdb+discover://127.0.0.1?TLS=False").ok().unwrap();
        assert_eq!(
            (plain.host.as_str(), plain.is_tls, plain.user),
            ("127.0.0.1:2113", false, None)
        );
        for wrong in ["", "node:2113", "http://node", "esdb://", "esdb://node?tls=flase"] {
            assert!(matches!(Target::parse(wrong), Err(RemoteError::Url(_))), "{wrong}");
        }
    }
}
