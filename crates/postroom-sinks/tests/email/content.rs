//! What a mail holds, and what it can never hold.

use super::{Mailbox, with_payload};
use crate::destination::rejected;
use crate::page;
use postroom_core::{Outcome, RawJson};
use postroom_testkit::Smtp;
use postroom_testkit::sink_contract::{deliver_all, message};
use serde_json::json;

#[tokio::test]
async fn templates_make_subject_text_and_html_and_values_are_no_markup() {
    let mailbox = Mailbox::open().await;
    let sink = mailbox.sink(json!({
        "to": "{{ payload.name }} <{{ payload.email }}>",
        "subject": "Order {{ payload.order }} für {{ payload.name }}",
        "text": "Dear {{ payload.name }},\n\n.\n{% for item in payload.items %}- {{ item }}\n{% endfor %}",
        "html": "<p>Dear {{ payload.name }}</p>",
    }));
    let sent = with_payload(
        "e-1",
        json!({
            "name": "Zoë <b>", "email": mailbox.address("zoe"), "order": 7,
            "items": ["tea", "milk & sugar"],
        }),
    );
    let outcomes = deliver_all(&*sink, &[sent]).await;
    let Outcome::Reject { error } = &outcomes[0] else { panic!("a name is no place for `<`") };
    assert!(error.contains("no address") && !error.contains("zoe"), "{error}");

    let sent = with_payload(
        "e-1",
        json!({
            "name": "Zoë", "email": mailbox.address("zoe"), "order": 7,
            "items": ["tea", "milk & <sugar>"],
        }),
    );
    assert_eq!(deliver_all(&*sink, &[sent]).await, [Outcome::Delivered]);
    let mail = mailbox.mails().remove(0);
    assert_eq!(mail.recipients, [mailbox.address("zoe")]);
    assert_eq!(mail.headers["from"], "Shop <shop@shop.test>");
    assert_eq!(mail.headers["to"], format!("Zoë <{}>", mailbox.address("zoe")));
    assert_eq!(mail.headers["subject"], "Order 7 für Zoë");
    assert_eq!(mail.headers["message-id"], "<test=3Acontract/order-1/e-1@shop.test>");
    assert!(mail.headers.contains_key("date"));
    let text = mail.text.unwrap().replace("\r\n", "\n");
    assert_eq!(text.trim_end(), "Dear Zoë,\n\n.\n- tea\n- milk & <sugar>");
    assert_eq!(mail.html.unwrap().trim_end(), "<p>Dear Zoë</p>");
}

#[tokio::test]
async fn html_alone_is_html_and_its_values_are_escaped() {
    let mailbox = Mailbox::open().await;
    let sink = mailbox.sink(json!({"html": "<p>{{ payload.text }}</p>"}));
    let sent = with_payload("e-1", json!({"text": "<script>1 & 2</script>"}));
    assert_eq!(deliver_all(&*sink, &[sent]).await, [Outcome::Delivered]);
    let mail = mailbox.mails().remove(0);
    assert_eq!(mail.text, None);
    let html = mail.html.unwrap();
    assert_eq!(html.trim_end(), "<p>&lt;script&gt;1 &amp; 2&lt;&#x2f;script&gt;</p>");
}

#[tokio::test]
async fn fault_35_nothing_is_smuggled_into_the_head_of_a_mail() {
    let mailbox = Mailbox::open().await;
    let sink = mailbox.sink(json!({
        "to": ["{{ payload.to }}"], "subject": "{{ payload.subject }}", "text": "x",
    }));
    let to = mailbox.address("ann");
    for (to, subject) in [
        (to.clone(), "a\r\nBcc: eve@evil.test"),
        (to.clone(), "a\nb"),
        (to.clone(), "nul\u{0}"),
        (format!("{to}\r\nRCPT TO:<eve@evil.test>"), "a"),
        (format!("{to}, eve@evil.test"), "a"),
        (format!("{to}>\r\nDATA"), "a"),
        ("nobody".to_owned(), "a"),
        (String::new(), "a"),
    ] {
        let sent = with_payload("e-1", json!({"to": to, "subject": subject}));
        let outcomes = deliver_all(&*sink, &[sent]).await;
        let error = rejected(&outcomes[0]);
        assert!(!error.contains(['\r', '\n']) && !error.contains("eve"), "{error}");
    }
    for headers in [
        json!({"x": "a\r\nBcc: eve@evil.test"}),
        json!({"Bcc": "eve@evil.test"}),
        json!({"Content-Type": "text/html"}),
        json!({"bad name": "x"}),
    ] {
        let mut sent = with_payload("e-1", json!({"to": to, "subject": "a"}));
        sent.headers = Some(RawJson::trusted(headers.to_string()));
        rejected(&deliver_all(&*sink, &[sent]).await[0]);
    }
    rejected(&deliver_all(&*sink, &[message("lacks everything")]).await[0]);
    assert!(mailbox.mails().is_empty());
}

#[tokio::test]
async fn addresses_outside_of_ascii_are_sent_where_the_server_takes_them() {
    let mailbox = Mailbox::open().await;
    let to = mailbox.address("zoë");
    let sink = mailbox.sink(json!({"to": to, "text": "x"}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    assert_eq!(mailbox.mails()[0].recipients, [to]);
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let server = Smtp::shared().await;
    let (host, port) = (server.address().ip().to_string(), server.address().port());
    // This server wants neither a login nor TLS.
    let replaced =
        json!({"host": host, "port": port, "tls": "none", "user": null, "password": null});
    page::deliver("email", replaced).await;
    let mail = server.mails("page.test").remove(0);
    assert_eq!(mail.headers["subject"], "Your order o-1");
    assert!(mail.html.unwrap().contains("<p>Dear Ann,</p>"));
}
