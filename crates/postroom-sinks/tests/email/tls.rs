//! Certificates and logins.

use super::configured;
use crate::destination::refused;
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{Authority, CertificateFiles, OrSkip as _, Smtp, SmtpSecurity};
use serde_json::{Value, json};

/// A server whose certificate is made out to 127.0.0.1, and who vouches for it.
fn start(
    security: fn(&CertificateFiles) -> SmtpSecurity<'_>,
) -> (Smtp, Authority, CertificateFiles) {
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "root");
    (Smtp::start(security(&files), true).or_skip(), authority, files)
}

async fn outcome(server: &Smtp, authority: Option<&Authority>, options: Value) -> Outcome {
    let mut all = json!({
        "to": "ann@tls.test", "text": "x", "user": "relay", "password": "hunter2",
    });
    if let Some(authority) = authority {
        all["ca_file"] = json!(authority.file());
    }
    for (key, value) in options.as_object().unwrap() {
        all[key] = value.clone();
    }
    let sink = configured(server.address(), all);
    let outcome = deliver_all(&*sink, &[message("e-1")]).await.remove(0);
    // What `check` finds is what a delivery finds.
    assert_eq!(sink.probe().await.is_ok(), outcome == Outcome::Delivered, "{outcome:?}");
    let shown = format!("{outcome:?} {:?}", sink.probe().await);
    assert!(!shown.contains("hunter") && !shown.contains("aHVudGVy"), "{shown}");
    outcome
}

#[tokio::test]
async fn starttls_is_insisted_on_and_its_certificate_checked() {
    let (server, authority, _files) = start(|files| SmtpSecurity::StartTls(files));
    let with = json!({"tls": "starttls"});
    assert_eq!(outcome(&server, Some(&authority), with.clone()).await, Outcome::Delivered);
    assert_eq!(server.mails("tls.test").len(), 1);
    for stranger in [None, Some(&Authority::new())] {
        let outcome = outcome(&server, stranger, with.clone()).await;
        assert!(refused(&outcome).contains("ca_file"), "{outcome:?}");
    }
    let wrong = json!({"tls": "starttls", "password": "hunter3"});
    let outcome = outcome(&server, Some(&authority), wrong).await;
    assert!(refused(&outcome).contains("535"), "{outcome:?}");
    assert_eq!(server.mails("tls.test").len(), 1);
}

#[tokio::test]
async fn tls_from_the_first_byte() {
    let (server, authority, _files) = start(|files| SmtpSecurity::Tls(files));
    let with = json!({"tls": "tls"});
    assert_eq!(outcome(&server, Some(&authority), with.clone()).await, Outcome::Delivered);
    let untrusted = outcome(&server, None, with).await;
    assert!(refused(&untrusted).contains("TLS with"), "{untrusted:?}");
}

#[tokio::test]
async fn a_server_without_starttls_gets_no_password_and_no_mail() {
    let server = Smtp::shared().await;
    let outcome = outcome(server, None, json!({"tls": "starttls", "to": "a@plain.test"})).await;
    assert!(refused(&outcome).contains("no STARTTLS"), "{outcome:?}");
    assert!(server.mails("plain.test").is_empty());
}
