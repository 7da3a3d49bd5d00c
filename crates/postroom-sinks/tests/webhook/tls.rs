//! Certificates of both sides, against a TLS server that asks for one.

use super::configured;
use crate::http_receiver::read_request;
use crate::messages::{deliver_one, message};
use postroom_core::{Outcome, Sink};
use postroom_testkit::{Authority, CertificateFiles, eventually};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A server with a certificate for `localhost`, and one for its clients.
struct Pki {
    authority: Authority,
    server: CertificateFiles,
    client: CertificateFiles,
}

impl Pki {
    fn new() -> Self {
        let authority = Authority::new();
        let (server, client) =
            (authority.issue(&["localhost"], "root"), authority.issue(&["client"], "root"));
        Self { authority, server, client }
    }

    /// Answers 200 to clients that show a certificate of the authority.
    async fn serve(&self) -> SocketAddr {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.authority.file()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_file(self.server.certificate()).unwrap()],
                PrivateKeyDer::from_pem_file(self.server.key()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    while read_request(&mut stream).await.is_some() {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        let _ = stream.write_all(answer).await;
                    }
                });
            }
        });
        address
    }
}

fn url(address: SocketAddr) -> String {
    format!("https://localhost:{}/", address.port())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn both_sides_show_a_certificate() {
    let pki = Pki::new();
    let address = pki.serve().await;
    let tls = json!({
        "ca": text(&pki.authority.file()),
        "certificate": text(pki.client.certificate()),
        "key": text(pki.client.key()),
    });
    let sink = configured(&url(address), json!({ "tls": tls }));
    sink.probe().await.unwrap();
    assert_eq!(deliver_one(&*sink, message("e-1")).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_certificate_that_is_not_accepted_pauses_the_lane() {
    let pki = Pki::new();
    let address = pki.serve().await;
    let ca = pki.authority.file();
    // None is shown, though one is asked for.
    let sink = configured(&url(address), json!({"tls": {"ca": text(&ca)}}));
    let error = refusal(&*sink).await;
    assert!(error.contains("tls.certificate"), "{error}");
    // One of a stranger.
    let stranger = Authority::new().issue(&["client"], "root");
    let tls = json!({
        "ca": text(&ca),
        "certificate": text(stranger.certificate()),
        "key": text(stranger.key()),
    });
    let sink = configured(&url(address), json!({ "tls": tls }));
    let error = refusal(&*sink).await;
    assert!(error.contains("tls.certificate"), "{error}");
}

/// Why the lane pauses. The server's alert and the end of the connection can overtake each other;
/// then it is a retry first.
async fn refusal(sink: &dyn Sink) -> String {
    eventually("the refusal", Duration::from_secs(60), async || {
        match deliver_one(sink, message("e-1")).await {
            Outcome::Refuse { error } => Some(error),
            Outcome::Retry { .. } => None,
            other => panic!("{other:?}"),
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_gets_nothing_and_pauses_the_lane() {
    let pki = Pki::new();
    let address = pki.serve().await;
    let other = Authority::new();
    let sink = configured(&url(address), json!({"tls": {"ca": text(&other.file())}}));
    let outcome = deliver_one(&*sink, message("e-1")).await;
    let Outcome::Refuse { error } = &outcome else { panic!("{outcome:?}") };
    assert!(error.contains("tls.ca"), "{error}");
    assert!(sink.probe().await.unwrap_err().to_string().contains("tls.ca"));
    // The right authority, another name.
    let sink = configured(
        &format!("https://127.0.0.1:{}/", address.port()),
        json!({"tls": {"ca": text(&pki.authority.file())}}),
    );
    let outcome = deliver_one(&*sink, message("e-1")).await;
    assert!(matches!(outcome, Outcome::Refuse { .. }), "{outcome:?}");
}
