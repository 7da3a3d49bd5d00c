//! Who the server must prove to be.

use super::{TABLE, configured, psql};
use crate::destination::refused;
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{Authority, CertificateFiles, Postgres};
use serde_json::{Value, json};

fn settings(files: &CertificateFiles) -> [(&'static str, &str); 3] {
    [
        ("ssl", "on"),
        ("ssl_cert_file", files.certificate().to_str().unwrap()),
        ("ssl_key_file", files.key().to_str().unwrap()),
    ]
}

#[tokio::test]
async fn a_certificate_is_checked_whenever_tls_is_used() {
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "postgres");
    let server = Postgres::private(&settings(&files)).await.unwrap();
    let database = server.database().await;
    database.client().await.batch_execute(TABLE).await.unwrap();
    let deliver = async |parameters: &str, options: Value| {
        let sink = configured(&format!("{}?{parameters}", database.url()), options);
        deliver_all(&*sink, &[message("e-1")]).await.remove(0)
    };
    let trusting = json!({"ca_file": authority.file()});
    assert_eq!(deliver("sslmode=require", trusting.clone()).await, Outcome::Delivered);
    assert_eq!(deliver("sslmode=prefer", trusting).await, Outcome::Delivered);
    assert_eq!(deliver("sslmode=disable", json!({})).await, Outcome::Delivered);
    let stranger = Authority::new();
    for options in [json!({}), json!({"ca_file": stranger.file()})] {
        for mode in ["require", "prefer"] {
            let outcome = deliver(&format!("sslmode={mode}"), options.clone()).await;
            assert!(refused(&outcome).contains("ca_file"), "{outcome:?}");
        }
    }
    assert_eq!(psql(database.url(), "SELECT count(*) FROM events"), 1);
}

#[tokio::test]
async fn verify_ca_checks_the_authority_and_verify_full_the_name_as_well() {
    let authority = Authority::new();
    let deliver = async |name: &str, mode: &str, ca_file: &Authority| {
        let files = authority.issue(&[name], "postgres");
        let server = Postgres::private(&settings(&files)).await.unwrap();
        let database = server.database().await;
        database.client().await.batch_execute(TABLE).await.unwrap();
        let url = format!("{}?sslmode={mode}", database.url());
        let sink = configured(&url, json!({"ca_file": ca_file.file()}));
        deliver_all(&*sink, &[message("e-1")]).await.remove(0)
    };
    for (name, mode) in
        [("127.0.0.1", "verify-ca"), ("127.0.0.1", "verify-full"), ("db.example", "verify-ca")]
    {
        assert_eq!(deliver(name, mode, &authority).await, Outcome::Delivered, "{name} {mode}");
    }
    let stranger = Authority::new();
    for (name, mode, ca_file) in [
        ("db.example", "verify-full", &authority),
        ("127.0.0.1", "verify-full", &stranger),
        ("127.0.0.1", "verify-ca", &stranger),
    ] {
        let outcome = deliver(name, mode, ca_file).await;
        assert!(refused(&outcome).contains("TLS with"), "{name} {mode} {outcome:?}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let database = super::database(TABLE).await;
    let sink = configured(&format!("{}?sslmode=require", database.url()), json!({}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("TLS with"), "{outcomes:?}");
}
