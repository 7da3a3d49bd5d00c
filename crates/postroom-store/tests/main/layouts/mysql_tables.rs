//! Tables that somebody else made on MariaDB and MySQL, each in its owner's words.

use super::tables::{Described, NO_TIME, TEXT, UUID, to_noop};
use postroom_store::Layout;
use postroom_store::layout::{Destination, Dialect, Sent};
use postroom_testkit::layout_contract::Words;

fn built_in(name: &str) -> Layout {
    Layout::built_in(name, Dialect::Mysql).expect("a built-in layout")
}

/// Rows `{from}` to `{to}`. MySQL takes the WITH in front of the SELECT alone; both servers end such a row of
/// numbers at a thousand.
macro_rules! numbers {
    ($insert:literal, $select:literal) => {
        concat!(
            $insert,
            " WITH RECURSIVE number (n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM number WHERE n < {to}) SELECT ",
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
             VALUES (concat('ABCDEF00-0000-4000-8000-', lpad('{n}', 12, '0')), 'run-{n}', 'run.started', 'key-{n}',
                     '{\"n\": {n}}')",
    insert_many: numbers!(
        "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)",
        "concat('ABCDEF00-0000-4000-8000-', lpad(n, 12, '0')), concat('run-', n), 'run.started', concat('key-', n),
         json_object('n', n)"
    ),
    insert_later: Err(NO_TIME),
    insert_sent: Ok("INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload, delivered_at)
                     VALUES (concat('ABCDEF00-0000-4000-8000-', lpad('{n}', 12, '0')), 'run-{n}', 'run.started',
                             'key-{n}', '{\"n\": {n}}', utc_timestamp(6))"),
    row: "idempotency_key = 'key-{n}'",
    reads: "CASE WHEN delivered_at IS NULL THEN 'open' ELSE 'sent' END",
    leaves: false,
    attempts: None,
    error: None,
    open: Ok("delivered_at = NULL"),
    close: Ok("delivered_at = utc_timestamp(6)"),
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
                 VALUES (uuid(), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'PENDING', 0,
                         floor(unix_timestamp(now(3)) * 1000), floor(unix_timestamp(now(3)) * 1000))",
        insert_many: numbers!(
            "INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)",
            "uuid(), 'order.created', concat('ord_', n), json_object('n', n), 'PENDING', 0,
             floor(unix_timestamp(now(3)) * 1000), floor(unix_timestamp(now(3)) * 1000)"
        ),
        insert_later: Ok("INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 VALUES (uuid(), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'PENDING', 0,
                         floor(unix_timestamp(now(3)) * 1000) + 3600000, floor(unix_timestamp(now(3)) * 1000))"),
        insert_sent: Ok("INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 VALUES (uuid(), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'SENT', 1, 0, 0)"),
        row: "aggregate_id = 'ord_{n}'",
        reads: "CASE status WHEN 'PENDING' THEN 'open' WHEN 'SENT' THEN 'sent' WHEN 'FAILED' THEN 'dead' ELSE status END",
        leaves: false,
        attempts: Some("attempts"),
        error: Some("last_error"),
        open: Ok("status = 'PENDING', attempts = 0, next_attempt_at = 0"),
        close: Ok("status = 'SENT'"),
        touch: "payload = json_set(payload, '$.seen', 1)",
        key_comes_again: Err(UUID),
    };
    Described { name: "kata", layout: to_noop(built_in("kata")), made_by: None, words }
}

pub(super) fn metadata() -> Described {
    let words = Words {
        table: "billing_events",
        lane: "nats:invoice",
        insert: "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (concat('01J', lpad('{n}', 23, '0')), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"type\": \"invoice.paid\", \"correlation_id\": \"c-{n}\", \"outbox_status\": \"pending\"}')",
        insert_many: numbers!(
            "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)",
            "concat('01J', lpad(n, 23, '0')), 'invoice', 'acme', concat('res_', n),
             json_object('n', n, 'type', 'invoice.paid', 'outbox_status', 'pending')"
        ),
        insert_later: Ok("INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (concat('01J', lpad('{n}', 23, '0')), 'invoice', 'acme', 'res_{n}',
                         json_object('n', {n}, 'outbox_status', 'pending', 'outbox_next_attempt_at',
                                     date_format(utc_timestamp() + INTERVAL 1 HOUR, '%Y-%m-%dT%H:%i:%sZ')))"),
        insert_sent: Ok("INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES (concat('01J', lpad('{n}', 23, '0')), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"outbox_status\": \"dispatched\"}')"),
        row: "resource_id = 'res_{n}'",
        reads: "CASE json_unquote(json_extract(payload, '$.outbox_status')) WHEN 'pending' THEN 'open'
                     WHEN 'dispatched' THEN 'sent' WHEN 'dead_letter' THEN 'dead'
                     ELSE json_unquote(json_extract(payload, '$.outbox_status')) END",
        leaves: false,
        attempts: Some("json_extract(payload, '$.outbox_retry_count')"),
        error: Some("json_unquote(json_extract(payload, '$.outbox_last_error'))"),
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
                 VALUES (concat('01J', lpad('{n}', 23, '0')), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"meta\": {\"delivery\": {\"outbox_status\": \"pending\"}}}')",
        insert_many: numbers!(
            "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)",
            "concat('01J', lpad(n, 23, '0')), 'invoice', 'acme', concat('res_', n),
             json_object('n', n, 'meta', json_object('delivery', json_object('outbox_status', 'pending')))"
        ),
        insert_later: Err("tested at the top level"),
        insert_sent: Err("tested at the top level"),
        reads: "CASE json_unquote(json_extract(payload, '$.meta.delivery.outbox_status')) WHEN 'pending' THEN 'open'
                     WHEN 'failed' THEN 'open' WHEN 'dispatched' THEN 'sent' WHEN 'dead_letter' THEN 'dead' END",
        attempts: Some("json_extract(payload, '$.meta.delivery.outbox_retry_count')"),
        error: Some("json_unquote(json_extract(payload, '$.meta.delivery.outbox_last_error'))"),
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
             VALUES (uuid(), 'order', 'ord_{n}', 'OrderCreated', '{\"n\": {n}}')",
    insert_many: numbers!(
        "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)",
        "uuid(), 'order', concat('ord_', n), 'OrderCreated', json_object('n', n)"
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
        aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload longtext, done boolean)";
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
    let made_by = "CREATE TABLE shop_events (id bigint AUTO_INCREMENT PRIMARY KEY, topic varchar(200) NOT NULL,
        body longtext NOT NULL, at datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
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

/// A key of two columns, in a partitioned table.
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
    let made_by = "CREATE TABLE tenant_events (tenant varchar(20) NOT NULL, no int NOT NULL, topic varchar(200) NOT NULL,
            body json NOT NULL, at datetime(6) NOT NULL DEFAULT (utc_timestamp(6)), published_at datetime, note text,
            PRIMARY KEY (tenant, no)) PARTITION BY KEY (tenant) PARTITIONS 2";
    let words = Words {
        table: "tenant_events",
        lane: "noop",
        insert: "INSERT INTO tenant_events (tenant, no, topic, body)
                 VALUES (concat('A/b%\"', {n} % 3), {n}, 'order.created', '{\"n\": {n}}')",
        insert_many: numbers!(
            "INSERT INTO tenant_events (tenant, no, topic, body)",
            "concat('A/b%\"', n % 3), n, 'order.created', json_object('n', n)"
        ),
        insert_later: Err(NO_TIME),
        insert_sent: Ok("INSERT INTO tenant_events (tenant, no, topic, body, published_at)
                         VALUES (concat('A/b%\"', {n} % 3), {n}, 'order.created', '{\"n\": {n}}', utc_timestamp())"),
        row: "no = {n}",
        reads: "CASE WHEN published_at IS NULL THEN 'open' ELSE 'sent' END",
        leaves: false,
        attempts: None,
        error: None,
        open: Ok("published_at = NULL"),
        close: Ok("published_at = utc_timestamp()"),
        touch: "note = 'seen'",
        key_comes_again: Err("the number of a tenant is its producer's to keep unique"),
    };
    let layout = layout.expect("a layout");
    Described { name: "composite", layout, made_by: Some(made_by), words }
}

/// A key of sixteen bytes that are a uuid, and times that each session reads in its own zone.
pub(super) fn binary_uuid() -> Described {
    let layout = Layout::from_toml(
        r#"
        table = "order_events"
        key = ["id"]
        to = "noop"
        [message]
        event_type = "m.kind"
        stream = "m.order_no"
        payload = "m.body"
        created_at = "m.created_at"
        [state]
        status = "CASE WHEN m.sent_at IS NULL THEN 'PENDING' ELSE 'SENT' END"
        open = "m.sent_at IS NULL"
        sent_at = "m.sent_at"
        [write]
        sent = { sent_at = "$at" }
        reopened = { sent_at = "NULL" }
        [insert]
        id = "unhex(replace($event_id, '-', ''))"
        kind = "$event_type"
        order_no = "$stream"
        body = "$payload"
        "#,
    );
    let made_by = "CREATE TABLE order_events (id binary(16) NOT NULL PRIMARY KEY, kind varchar(120) NOT NULL,
        order_no varchar(64) NOT NULL, body json NOT NULL,
        created_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), sent_at timestamp(6) NULL, note text,
        KEY order_events_open (sent_at, created_at))";
    let words = Words {
        table: "order_events",
        lane: "noop",
        insert: "INSERT INTO order_events (id, kind, order_no, body)
                 VALUES (unhex(replace(uuid(), '-', '')), 'order.created', 'ord_{n}', '{\"n\": {n}}')",
        insert_many: numbers!(
            "INSERT INTO order_events (id, kind, order_no, body)",
            "unhex(concat('0198c1f000007000', lpad(hex(n), 16, '0'))), 'order.created', concat('ord_', n),
             json_object('n', n)"
        ),
        insert_later: Err(NO_TIME),
        insert_sent: Ok("INSERT INTO order_events (id, kind, order_no, body, sent_at)
                         VALUES (unhex(replace(uuid(), '-', '')), 'order.created', 'ord_{n}', '{\"n\": {n}}',
                                 CURRENT_TIMESTAMP(6))"),
        row: "order_no = 'ord_{n}'",
        reads: "CASE WHEN sent_at IS NULL THEN 'open' ELSE 'sent' END",
        leaves: false,
        attempts: None,
        error: None,
        open: Ok("sent_at = NULL"),
        close: Ok("sent_at = CURRENT_TIMESTAMP(6)"),
        touch: "note = 'seen'",
        key_comes_again: Err(UUID),
    };
    let layout = layout.expect("a layout");
    Described { name: "binary uuid", layout, made_by: Some(made_by), words }
}
