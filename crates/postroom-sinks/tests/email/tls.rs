//! Certificates and logins.

use super::configured;
use crate::destination::refused;
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{Authority, CertificateFiles, Smtp, SmtpSecurity, skip};
use serde_json::{Value, json};

/// A server whose certificate is made out to 127.0.0.1, and who vouches for it.
fn start(
    test: &str,
    security: fn(&CertificateFiles) -> SmtpSecurity<'_>,
) -> Option<(Smtp, Authority, CertificateFiles)> {
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "root");
    match Smtp::start(security(&files), true) {
        Ok(server) => Some((server, authority, files)),
        Err(error) => {
            skip(&format!("email: {test}"), &format!("{error:#}"));
            None
        }
    }
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
    let Some((server, authority, _files)) =
        start("STARTTLS", |files| SmtpSecurity::StartTls(files))
    else {
        return;
    };
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
    let Some((server, authority, _files)) = start("TLS", |files| SmtpSecurity::Tls(files)) else {
        return;
    };
    let with = json!({"tls": "tls"});
    assert_eq!(outcome(&server, Some(&authority), with.clone()).await, Outcome::Delivered);
    let untrusted = outcome(&server, None, with).await;
    assert!(refused(&untrusted).contains("TLS with"), "{untrusted:?}");
}

#[tokio::test]
async fn a_server_without_starttls_gets_no_password_and_no_mail() {
    let Ok(server) = Smtp::shared().await else {
        return skip("email: no STARTTLS", "there is no SMTP server");
    };
    let outcome = outcome(server, None, json!({"tls": "starttls", "to": "a@plain.test"})).await;
    assert!(refused(&outcome).contains("no STARTTLS"), "{outcome:?}");
    assert!(server.mails("plain.test").is_empty());
}
