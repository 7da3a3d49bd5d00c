//! What the server's replies lead to.

use super::{Mailbox, with_payload};
use crate::destination::{refused, rejected, retried};
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use serde_json::json;

#[tokio::test]
async fn a_recipient_that_is_refused_leaves_the_others_their_mail() {
    let mailbox = Mailbox::open().await;
    let to = [mailbox.address("ann"), mailbox.address("refuse-550"), mailbox.address("bob")];
    let sink = mailbox.sink(json!({"to": to, "text": "x"}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    let error = rejected(&outcomes[0]);
    assert!(error.contains("1 of 3 recipients") && error.contains("550 5.1.1"), "{error}");
    assert!(!error.contains(&mailbox.domain), "no address: {error}");
    let mails = mailbox.mails();
    assert_eq!(mails.len(), 1);
    assert_eq!(mails[0].recipients, [to[0].clone(), to[2].clone()]);
}

#[tokio::test]
async fn a_recipient_that_must_wait_is_tried_again_alone() {
    let mailbox = Mailbox::open().await;
    let to = [mailbox.address("ann"), mailbox.address("later-451"), mailbox.address("refuse-550")];
    let sink = mailbox.sink(json!({"to": to, "text": "x"}));
    let sent = message("e-1");
    let outcomes = deliver_all(&*sink, std::slice::from_ref(&sent)).await;
    let Outcome::Retry { error, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("451 4.1.1") && error.contains("1 of 3 have the mail"), "{error}");
    let outcomes = deliver_all(&*sink, &[sent]).await;
    assert!(rejected(&outcomes[0]).contains("1 of 3 recipients"), "{outcomes:?}");
    let recipients: Vec<_> = mailbox.mails().into_iter().map(|mail| mail.recipients).collect();
    assert_eq!(recipients, [[to[0].clone()], [to[1].clone()]], "each once, and with one id");
}

#[tokio::test]
async fn a_server_that_does_not_relay_is_no_fault_of_the_recipient() {
    let mailbox = Mailbox::open().await;
    let sink = mailbox.sink(json!({"to": mailbox.address("refuse-554-5.7.1"), "text": "x"}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    let error = retried(&outcomes[0]);
    assert!(error.contains("554 5.7.1") && error.contains("0 of 1 have the mail"), "{error}");
    assert!(error.contains("check `host` and the login"), "{error}");
}

#[tokio::test]
async fn content_is_refused_for_good_or_for_now_by_its_code() {
    let mailbox = Mailbox::open().await;
    let sink = mailbox.sink(json!({"subject": "{{ payload.subject }}", "text": "x"}));
    for (code, is_final) in [(451, false), (452, false), (550, true), (552, true), (554, true)] {
        let subject = format!("refuse {code}");
        let sent = with_payload("e-1", json!({"subject": subject}));
        let outcomes = deliver_all(&*sink, &[sent]).await;
        match &outcomes[0] {
            Outcome::Reject { error } if is_final => {
                assert!(error.contains(&code.to_string()), "{error}");
            }
            Outcome::Retry { .. } if !is_final => {}
            other => panic!("{code}: {other:?}"),
        }
    }
    let sent = with_payload("e-2", json!({"subject": "fine"}));
    assert_eq!(deliver_all(&*sink, &[sent]).await, [Outcome::Delivered]);
}

#[tokio::test]
async fn a_sender_that_may_not_send_concerns_the_destination() {
    let mailbox = Mailbox::open().await;
    for code in [550, 553, 530] {
        let sink = mailbox.sink(json!({"from": format!("refuse-{code}@x.test"), "text": "x"}));
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        assert!(refused(&outcomes[0]).contains(&code.to_string()), "{outcomes:?}");
    }
    let sink = mailbox.sink(json!({"from": "refuse-451@x.test", "text": "x"}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(matches!(&outcomes[0], Outcome::Retry { .. }), "{outcomes:?}");
    assert!(mailbox.mails().is_empty());
}
