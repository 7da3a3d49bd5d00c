//! Tables that somebody else made on SQLite, each in its owner's words.

use super::tables::{Described, NO_TIME, TEXT, UUID, to_noop};
use postroom_store::Layout;
use postroom_store::layout::{Destination, Dialect, Sent};
use postroom_testkit::layout_contract::Words;

fn built_in(name: &str) -> Layout {
    Layout::built_in(name, Dialect::Sqlite).expect("a built-in layout")
}

/// Rows `{from}` to `{to}`.
macro_rules! numbers {
    ($insert:literal, $select:literal) => {
        concat!(
            "WITH RECURSIVE number (n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM number WHERE n < {to}) ",
            $insert,
            " SELECT ",
            $select,
            " FROM number"
        )
    };
}

/// The key of row `n` is a uuid in upper case, as some drivers write it.
const EVENTS: Words = Words {
    table: "outbox_events",
    lane: "noop",
    insert: "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
             VALUES (printf('ABCDEF00-0000-4000-8000-%012d', {n}), 'run-{n}', 'run.started', 'key-{n}', '{\"n\": {n}}')",
    insert_many: numbers!(
        "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)",
        "printf('ABCDEF00-0000-4000-8000-%012d', n), 'run-' || n, 'run.started', 'key-' || n, json_object('n', n)"
    ),
    insert_later: Err(NO_TIME),
    insert_sent: Ok("INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload, delivered_at)
                     VALUES (printf('ABCDEF00-0000-4000-8000-%012d', {n}), 'run-{n}', 'run.started', 'key-{n}',
                             '{\"n\": {n}}', CURRENT_TIMESTAMP)"),
    row: "idempotency_key = 'key-{n}'",
    reads: "CASE WHEN delivered_at IS NULL THEN 'open' ELSE 'sent' END",
    leaves: false,
    attempts: None,
    error: None,
    open: Ok("delivered_at = NULL"),
    close: Ok("delivered_at = CURRENT_TIMESTAMP"),
    touch: "payload = json_set(payload, '$.seen', 1)",
    key_comes_again: Err(UUID),
};

pub(super) fn events() -> Described {
    Described { name: "events", layout: to_noop(built_in("events")), made_by: None, words: EVENTS }
}

pub(super) fn kata() -> Described {
    let words = Words {
        table: "outbox",
        lane: "noop",
        insert: "INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 VALUES (lower(hex(randomblob(16))), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'PENDING', 0,
                         CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
                         CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
        insert_many: numbers!(
            "INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)",
            "lower(hex(randomblob(16))), 'order.created', 'ord_' || n, json_object('n', n), 'PENDING', 0,
             CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
             CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
        ),
        insert_later: Ok("INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 VALUES (lower(hex(randomblob(16))), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'PENDING', 0,
                         CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + 3600000,
                         CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))"),
        insert_sent: Ok("INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 VALUES (lower(hex(randomblob(16))), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'SENT', 1, 0, 0)"),
        row: "aggregate_id = 'ord_{n}'",
        reads: "CASE status WHEN 'PENDING' THEN 'open' WHEN 'SENT' THEN 'sent' WHEN 'FAILED' THEN 'dead' ELSE status END",
        leaves: false,
        attempts: Some("attempts"),
        error: Some("last_error"),
        open: Ok("status = 'PENDING', attempts = 0, next_attempt_at = 0"),
        close: Ok("status = 'SENT'"),
        touch: "payload = json_set(payload, '$.seen', 1)",
        key_comes_again: Err(TEXT),
    };
    Described { name: "kata", layout: to_noop(built_in("kata")), made_by: None, words }
}

pub(super) fn metadata() -> Described {
    let words = Words {
        table: "billing_events",
        lane: "nats:invoice",
        insert: "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (printf('01J%023d', {n}), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"type\": \"invoice.paid\", \"correlation_id\": \"c-{n}\", \"outbox_status\": \"pending\"}')",
        insert_many: numbers!(
            "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)",
            "printf('01J%023d', n), 'invoice', 'acme', 'res_' || n,
             json_object('n', n, 'type', 'invoice.paid', 'outbox_status', 'pending')"
        ),
        insert_later: Ok("INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (printf('01J%023d', {n}), 'invoice', 'acme', 'res_{n}',
                         json_object('n', {n}, 'outbox_status', 'pending',
                                     'outbox_next_attempt_at', datetime('now', '+1 hour')))"),
        insert_sent: Ok("INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (printf('01J%023d', {n}), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"outbox_status\": \"dispatched\"}')"),
        row: "resource_id = 'res_{n}'",
        reads: "CASE json_extract(payload, '$.outbox_status') WHEN 'pending' THEN 'open' WHEN 'dispatched' THEN 'sent'
                     WHEN 'dead_letter' THEN 'dead' ELSE json_extract(payload, '$.outbox_status') END",
        leaves: false,
        attempts: Some("json_extract(payload, '$.outbox_retry_count')"),
        error: Some("json_extract(payload, '$.outbox_last_error')"),
        open: Ok("payload = json_set(payload, '$.outbox_status', 'pending', '$.outbox_retry_count', 0)"),
        close: Ok("payload = json_set(payload, '$.outbox_status', 'dispatched')"),
        touch: "payload = json_set(payload, '$.seen', 1)",
        key_comes_again: Err(TEXT),
    };
    let to = Some(Destination::One("nats:{subject}".to_owned()));
    let layout = Layout { to, ..built_in("metadata") };
    Described { name: "metadata", layout, made_by: None, words }
}

/// The state further down in the document, where its owner's tools expect `failed` for a retry.
pub(super) fn metadata_nested() -> Described {
    let Described { mut layout, words, .. } = metadata();
    let path = toml::Value::Array(vec!["meta".into(), "delivery".into()]);
    layout.settings.insert("path".to_owned(), path);
    layout.settings.insert("retry_status".to_owned(), "failed".into());
    let words = Words {
        insert: "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (printf('01J%023d', {n}), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"meta\": {\"delivery\": {\"outbox_status\": \"pending\"}}}')",
        insert_many: numbers!(
            "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)",
            "printf('01J%023d', n), 'invoice', 'acme', 'res_' || n,
             json_object('n', n, 'meta', json_object('delivery', json_object('outbox_status', 'pending')))"
        ),
        insert_later: Err("tested at the top level"),
        insert_sent: Err("tested at the top level"),
        reads: "CASE json_extract(payload, '$.meta.delivery.outbox_status') WHEN 'pending' THEN 'open'
                     WHEN 'failed' THEN 'open' WHEN 'dispatched' THEN 'sent' WHEN 'dead_letter' THEN 'dead' END",
        attempts: Some("json_extract(payload, '$.meta.delivery.outbox_retry_count')"),
        error: Some("json_extract(payload, '$.meta.delivery.outbox_last_error')"),
        open: Ok("payload = json_set(payload, '$.meta.delivery.outbox_status', 'pending',
                                     '$.meta.delivery.outbox_retry_count', 0)"),
        close: Ok("payload = json_set(payload, '$.meta.delivery.outbox_status', 'dispatched')"),
        ..words
    };
    Described { name: "metadata, nested", layout, made_by: None, words }
}

const DEBEZIUM: Words = Words {
    table: "outboxevent",
    lane: "kafka:outbox.event.order",
    insert: "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)
             VALUES (lower(hex(randomblob(16))), 'order', 'ord_{n}', 'OrderCreated', '{\"n\": {n}}')",
    insert_many: numbers!(
        "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)",
        "lower(hex(randomblob(16))), 'order', 'ord_' || n, 'OrderCreated', json_object('n', n)"
    ),
    insert_later: Err(NO_TIME),
    insert_sent: Err("a delivered row is gone"),
    row: "aggregateid = 'ord_{n}'",
    reads: "'open'",
    leaves: true,
    attempts: None,
    error: None,
    open: Err("a delivered row is gone"),
    close: Err("nothing in a row closes it"),
    touch: "type = 'OrderPlaced'",
    key_comes_again: Err(UUID),
};

pub(super) fn debezium() -> Described {
    Described { name: "debezium", layout: built_in("debezium"), made_by: None, words: DEBEZIUM }
}

/// Marked in a column that its owner has added, instead of deleted.
pub(super) fn debezium_marked() -> Described {
    let mut layout = built_in("debezium");
    layout.state.status = "CASE WHEN m.done THEN 'SENT' ELSE 'PENDING' END".to_owned();
    layout.state.open = Some("m.done IS NOT TRUE".to_owned());
    let set = |value: &str| [("done".to_owned(), value.to_owned())].into();
    layout.write.sent = Sent::Set(set("true"));
    layout.write.reopened = set("false");
    let made_by =
        "CREATE TABLE outboxevent (id varchar(36) PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
        aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload text, done boolean)";
    let words = Words {
        reads: "CASE WHEN done THEN 'sent' ELSE 'open' END",
        leaves: false,
        open: Ok("done = false"),
        close: Ok("done = true"),
        ..DEBEZIUM
    };
    Described { name: "debezium, marked", layout, made_by: Some(made_by), words }
}

/// A table nobody described before: numbered rows with a time of creation, and a flag.
pub(super) fn numbered() -> Described {
    let layout = Layout::from_toml(
        r#"
        table = "shop_events"
        key = ["id"]
        to = "kafka:{topic}"
        [message]
        event_type = "m.topic"
        payload = "m.body"
        created_at = "m.at"
        [state]
        status = "CASE WHEN m.processed THEN 'SENT' ELSE 'PENDING' END"
        open = "NOT m.processed"
        [write]
        sent = { processed = "true" }
        reopened = { processed = "false" }
        [insert]
        topic = "substr($integration, 7)"
        body = "$payload"
        "#,
    );
    let made_by =
        "CREATE TABLE shop_events (id INTEGER PRIMARY KEY AUTOINCREMENT, topic text NOT NULL,
        body text NOT NULL, at text NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
        processed boolean NOT NULL DEFAULT false, note text)";
    let words = Words {
        table: "shop_events",
        lane: "kafka:orders",
        insert: "INSERT INTO shop_events (id, topic, body) VALUES ({n}, 'orders', '{\"n\": {n}}')",
        insert_many: numbers!(
            "INSERT INTO shop_events (id, topic, body)",
            "n, 'orders', json_object('n', n)"
        ),
        insert_later: Err(NO_TIME),
        insert_sent: Ok("INSERT INTO shop_events (id, topic, body, processed)
                         VALUES ({n}, 'orders', '{\"n\": {n}}', true)"),
        row: "id = {n}",
        reads: "CASE WHEN processed THEN 'sent' ELSE 'open' END",
        leaves: false,
        attempts: None,
        error: None,
        open: Ok("processed = false"),
        close: Ok("processed = true"),
        touch: "note = 'seen'",
        key_comes_again: Ok(()),
    };
    let layout = layout.expect("a layout");
    Described { name: "numbered", layout, made_by: Some(made_by), words }
}

/// A key of two columns.
pub(super) fn composite() -> Described {
    let layout = Layout::from_toml(
        r#"
        table = "tenant_events"
        key = ["tenant", "no"]
        to = "noop"
        routes = [{ when = { topic = "audit.*" }, to = "noop:audit" }]
        [message]
        event_type = "m.topic"
        stream = "m.tenant"
        tenant_id = "m.tenant"
        payload = "m.body"
        created_at = "m.at"
        [state]
        status = "CASE WHEN m.published_at IS NULL THEN 'PENDING' ELSE 'SENT' END"
        open = "m.published_at IS NULL"
        sent_at = "m.published_at"
        [write]
        sent = { published_at = "$at" }
        reopened = { published_at = "NULL" }
        "#,
    );
    let made_by = "CREATE TABLE tenant_events (tenant varchar(20) NOT NULL, no int NOT NULL, topic text NOT NULL,
        body text NOT NULL, at text NOT NULL DEFAULT CURRENT_TIMESTAMP, published_at text, note text,
        PRIMARY KEY (tenant, no))";
    let words = Words {
        table: "tenant_events",
        lane: "noop",
        insert: "INSERT INTO tenant_events (tenant, no, topic, body)
                 VALUES ('A/b%\"' || {n} % 3, {n}, 'order.created', '{\"n\": {n}}')",
        insert_many: numbers!(
            "INSERT INTO tenant_events (tenant, no, topic, body)",
            "'A/b%\"' || n % 3, n, 'order.created', json_object('n', n)"
        ),
        insert_later: Err(NO_TIME),
        insert_sent: Ok("INSERT INTO tenant_events (tenant, no, topic, body, published_at)
                         VALUES ('A/b%\"' || {n} % 3, {n}, 'order.created', '{\"n\": {n}}', CURRENT_TIMESTAMP)"),
        row: "no = {n}",
        reads: "CASE WHEN published_at IS NULL THEN 'open' ELSE 'sent' END",
        leaves: false,
        attempts: None,
        error: None,
        open: Ok("published_at = NULL"),
        close: Ok("published_at = CURRENT_TIMESTAMP"),
        touch: "note = 'seen'",
        key_comes_again: Err("the number of a tenant is its producer's to keep unique"),
    };
    let layout = layout.expect("a layout");
    Described { name: "composite", layout, made_by: Some(made_by), words }
}
