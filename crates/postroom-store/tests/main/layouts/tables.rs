//! Tables that somebody else made, each in its owner's words.

use postroom_store::Layout;
use postroom_store::layout::{Destination, Dialect, Feed};
use postroom_testkit::layout_contract::Words;

/// A table, how Postroom reads it, and what its owner has made.
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) layout: Layout,
    /// What its owner has run; `None` where Postroom makes the table itself.
    pub(super) made_by: Option<&'static str>,
    pub(super) words: Words,
}

impl Described {
    /// What its `insert` has a column for, out of what somebody enqueues.
    pub(super) fn held<'a>(&self, name: &str, value: &'a str) -> Option<&'a str> {
        self.layout.insert.values().any(|sql| sql.contains(name)).then_some(value)
    }
}

fn built_in(name: &str) -> Layout {
    Layout::built_in(name, Dialect::Postgres).expect("a built-in layout")
}

pub(super) fn to_noop(layout: Layout) -> Layout {
    Layout { to: Some(Destination::One("noop".to_owned())), ..layout }
}

pub(super) const NO_TIME: &str = "its rows have no due time";
pub(super) const UUID: &str = "a uuid does not come again";
pub(super) const TEXT: &str = "a text key is its producer's to keep unique";

const EVENTS: Words = Words {
    table: "outbox_events",
    lane: "noop",
    insert: "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
             VALUES (('00000000-0000-4000-8000-' || lpad('{n}', 12, '0'))::uuid, gen_random_uuid(), 'run.started',
                     'key-{n}', '{\"n\": {n}}')",
    insert_many: "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
                  SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, gen_random_uuid(),
                         'run.started', 'key-' || n, jsonb_build_object('n', n)
                  FROM generate_series({from}, {to}) AS n",
    insert_later: Err(NO_TIME),
    insert_sent: Ok("INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload, delivered_at)
                     VALUES (('00000000-0000-4000-8000-' || lpad('{n}', 12, '0'))::uuid, gen_random_uuid(),
                             'run.started', 'key-{n}', '{\"n\": {n}}', now())"),
    row: "idempotency_key = 'key-{n}'",
    reads: "CASE WHEN delivered_at IS NULL THEN 'open' ELSE 'sent' END",
    leaves: false,
    attempts: None,
    error: None,
    open: Ok("delivered_at = NULL"),
    close: Ok("delivered_at = now()"),
    touch: "payload = payload || '{\"seen\": true}'",
    key_comes_again: Err(UUID),
};

pub(super) fn events() -> Described {
    Described { name: "events", layout: to_noop(built_in("events")), made_by: None, words: EVENTS }
}

/// The same table, whose owner allows no trigger.
pub(super) fn events_polled() -> Described {
    let layout = Layout { feed: Feed::Poll, ..to_noop(built_in("events")) };
    // As that document's owner would have made it, with what PostgreSQL refuses put right.
    let made_by = "CREATE TABLE outbox_events (
            event_id UUID PRIMARY KEY, run_id UUID NOT NULL, event_type VARCHAR(50) NOT NULL,
            idempotency_key VARCHAR(255) UNIQUE NOT NULL, payload JSONB NOT NULL,
            created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), delivered_at TIMESTAMPTZ);
        CREATE INDEX idx_undelivered ON outbox_events (delivered_at) WHERE delivered_at IS NULL";
    Described { name: "events, polled", layout, made_by: Some(made_by), words: EVENTS }
}

pub(super) fn kata() -> Described {
    let words = Words {
        table: "outbox",
        lane: "noop",
        insert: "INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 SELECT gen_random_uuid(), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'PENDING', 0, now.ms, now.ms
                 FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) AS now",
        insert_many: "INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                      SELECT gen_random_uuid(), 'order.created', 'ord_' || n, jsonb_build_object('n', n), 'PENDING', 0,
                             now.ms, now.ms
                      FROM generate_series({from}, {to}) AS n,
                           (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) AS now",
        insert_later: Ok("INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 SELECT gen_random_uuid(), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'PENDING', 0, now.ms + 3600000,
                        now.ms
                 FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) AS now"),
        insert_sent: Ok("INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
                 SELECT gen_random_uuid(), 'order.created', 'ord_{n}', '{\"n\": {n}}', 'SENT', 1, now.ms, now.ms
                 FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) AS now"),
        row: "aggregate_id = 'ord_{n}'",
        reads: "CASE status WHEN 'PENDING' THEN 'open' WHEN 'SENT' THEN 'sent' WHEN 'FAILED' THEN 'dead' ELSE status END",
        leaves: false,
        attempts: Some("attempts"),
        error: Some("last_error"),
        open: Ok("status = 'PENDING', attempts = 0, next_attempt_at = 0"),
        close: Ok("status = 'SENT'"),
        touch: "payload = payload || '{\"seen\": true}'",
        key_comes_again: Err(UUID),
    };
    Described { name: "kata", layout: to_noop(built_in("kata")), made_by: None, words }
}

pub(super) fn metadata() -> Described {
    let words = Words {
        table: "billing_events",
        lane: "nats:invoice",
        insert: "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES ('01J' || lpad('{n}', 23, '0'), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"type\": \"invoice.paid\", \"correlation_id\": \"c-{n}\", \"outbox_status\": \"pending\"}')",
        insert_many: "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                      SELECT '01J' || lpad(n::text, 23, '0'), 'invoice', 'acme', 'res_' || n,
                             jsonb_build_object('n', n, 'type', 'invoice.paid', 'outbox_status', 'pending')
                      FROM generate_series({from}, {to}) AS n",
        insert_later: Ok("INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES ('01J' || lpad('{n}', 23, '0'), 'invoice', 'acme', 'res_{n}',
                         jsonb_build_object('n', {n}, 'outbox_status', 'pending',
                                            'outbox_next_attempt_at', now() + interval '1 hour'))"),
        insert_sent: Ok("INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                 VALUES ('01J' || lpad('{n}', 23, '0'), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"outbox_status\": \"dispatched\"}')"),
        row: "resource_id = 'res_{n}'",
        reads: "CASE payload->>'outbox_status' WHEN 'pending' THEN 'open' WHEN 'dispatched' THEN 'sent'
                                               WHEN 'dead_letter' THEN 'dead' ELSE payload->>'outbox_status' END",
        leaves: false,
        attempts: Some("payload->>'outbox_retry_count'"),
        error: Some("payload->>'outbox_last_error'"),
        open: Ok("payload = payload || '{\"outbox_status\": \"pending\", \"outbox_retry_count\": 0}'"),
        close: Ok("payload = payload || '{\"outbox_status\": \"dispatched\"}'"),
        touch: "payload = payload || '{\"seen\": true}'",
        key_comes_again: Err(TEXT),
    };
    let to = Some(Destination::One("nats:{subject}".to_owned()));
    let layout = Layout { to, ..built_in("metadata") };
    Described { name: "metadata", layout, made_by: None, words }
}

/// The state further down in the document, where its owner's tools expect `failed` for a retry.
pub(super) fn metadata_nested() -> Described {
    let mut layout = metadata().layout;
    layout.table = "billing.events".to_owned();
    layout
        .settings
        .insert("path".to_owned(), toml::Value::Array(vec!["meta".into(), "delivery".into()]));
    layout.settings.insert("retry_status".to_owned(), "failed".into());
    let made_by =
        "CREATE SCHEMA billing; CREATE TABLE billing.events (id char(26) COLLATE \"C\" PRIMARY KEY,
        subject text, tenant_id text NOT NULL, resource_id text, payload jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now())";
    let words = Words {
        table: "billing.events",
        lane: "nats:invoice",
        insert: "INSERT INTO billing.events (id, subject, tenant_id, resource_id, payload)
                 VALUES ('01J' || lpad('{n}', 23, '0'), 'invoice', 'acme', 'res_{n}',
                         '{\"n\": {n}, \"meta\": {\"delivery\": {\"outbox_status\": \"pending\"}}}')",
        insert_many: "INSERT INTO billing.events (id, subject, tenant_id, resource_id, payload)
                      SELECT '01J' || lpad(n::text, 23, '0'), 'invoice', 'acme', 'res_' || n,
                             jsonb_build_object('n', n, 'meta', jsonb_build_object('delivery',
                                 jsonb_build_object('outbox_status', 'pending')))
                      FROM generate_series({from}, {to}) AS n",
        insert_later: Err("tested at the top level"),
        insert_sent: Err("tested at the top level"),
        row: "resource_id = 'res_{n}'",
        reads: "CASE payload #>> '{meta,delivery,outbox_status}' WHEN 'pending' THEN 'open' WHEN 'failed' THEN 'open'
                     WHEN 'dispatched' THEN 'sent' WHEN 'dead_letter' THEN 'dead' END",
        leaves: false,
        attempts: Some("payload #>> '{meta,delivery,outbox_retry_count}'"),
        error: Some("payload #>> '{meta,delivery,outbox_last_error}'"),
        open: Ok("payload = jsonb_set(payload, '{meta,delivery}', '{\"outbox_status\": \"pending\", \"outbox_retry_count\": 0}')"),
        close: Ok("payload = jsonb_set(payload, '{meta,delivery,outbox_status}', '\"dispatched\"')"),
        touch: "payload = payload || '{\"seen\": true}'",
        key_comes_again: Err(TEXT),
    };
    Described { name: "metadata, nested", layout, made_by: Some(made_by), words }
}

const DEBEZIUM: Words = Words {
    table: "outboxevent",
    lane: "kafka:outbox.event.order",
    insert: "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)
             VALUES (gen_random_uuid(), 'order', 'ord_{n}', 'OrderCreated', '{\"n\": {n}}')",
    insert_many: "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)
                  SELECT gen_random_uuid(), 'order', 'ord_' || n, 'OrderCreated', jsonb_build_object('n', n)
                  FROM generate_series({from}, {to}) AS n",
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
    layout.write.sent = postroom_store::layout::Sent::Set(set("true"));
    layout.write.reopened = set("false");
    let made_by =
        "CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
        aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload text, done boolean)";
    let words = Words {
        insert_many: "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)
                      SELECT gen_random_uuid(), 'order', 'ord_' || n, 'OrderCreated', '{\"n\": ' || n || '}'
                      FROM generate_series({from}, {to}) AS n",
        reads: "CASE WHEN done THEN 'sent' ELSE 'open' END",
        leaves: false,
        open: Ok("done = false"),
        close: Ok("done = true"),
        ..DEBEZIUM
    };
    layout.insert.insert("payload".to_owned(), "$payload::text".to_owned());
    Described { name: "debezium, marked", layout, made_by: Some(made_by), words }
}

pub(super) fn typeorm() -> Described {
    let words = Words {
        table: "core_outbox.integration_outbox",
        lane: "noop",
        insert: "INSERT INTO core_outbox.integration_outbox
                     (\"sourceStreamId\", \"sourceEventId\", \"integrationType\", \"eventType\", payload)
                 VALUES ('s-{n}', 'e-{n}', 'noop', 'payment.completed.v1', '{\"n\": {n}}')",
        insert_many: "INSERT INTO core_outbox.integration_outbox
                          (\"sourceStreamId\", \"sourceEventId\", \"integrationType\", \"eventType\", payload)
                      SELECT 's-' || n, 'e-' || n, 'noop', 'payment.completed.v1', jsonb_build_object('n', n)
                      FROM generate_series({from}, {to}) AS n",
        insert_later: Ok("INSERT INTO core_outbox.integration_outbox
                     (\"sourceStreamId\", \"sourceEventId\", \"integrationType\", \"eventType\", payload, \"dueAt\")
                 VALUES ('s-{n}', 'e-{n}', 'noop', 'payment.completed.v1', '{\"n\": {n}}', now() + interval '1 hour')"),
        insert_sent: Ok("INSERT INTO core_outbox.integration_outbox
                     (\"sourceStreamId\", \"sourceEventId\", \"integrationType\", \"eventType\", payload, status)
                 VALUES ('s-{n}', 'e-{n}', 'noop', 'payment.completed.v1', '{\"n\": {n}}', 'SENT')"),
        row: "\"sourceEventId\" = 'e-{n}'",
        reads: "CASE status WHEN 'PENDING' THEN 'open' WHEN 'FAILED' THEN 'open' ELSE lower(status) END",
        leaves: false,
        attempts: Some("attempts"),
        error: Some("\"lastError\""),
        open: Ok("status = 'PENDING', attempts = 0, \"dueAt\" = now()"),
        close: Ok("status = 'SENT'"),
        touch: "headers = '{}'",
        key_comes_again: Err(UUID),
    };
    Described { name: "typeorm", layout: built_in("typeorm"), made_by: None, words }
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
        payload = "m.body::jsonb"
        created_at = "m.at AT TIME ZONE 'UTC'"
        [state]
        status = "CASE WHEN m.processed THEN 'SENT' ELSE 'PENDING' END"
        open = "NOT m.processed"
        [write]
        sent = { processed = "true" }
        reopened = { processed = "false" }
        [insert]
        topic = "substr($integration, 7)"
        body = "$payload::text"
        at = "now() AT TIME ZONE 'UTC'"
        "#,
    );
    let made_by = "CREATE TABLE shop_events (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, topic text NOT NULL,
        body text NOT NULL, at timestamp NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC'),
        processed boolean NOT NULL DEFAULT false, note text)";
    let words = Words {
        table: "shop_events",
        lane: "kafka:orders",
        insert: "INSERT INTO shop_events (id, topic, body) VALUES ({n}, 'orders', '{\"n\": {n}}')",
        insert_many: "INSERT INTO shop_events (id, topic, body)
                      SELECT n, 'orders', '{\"n\": ' || n || '}' FROM generate_series({from}, {to}) AS n",
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
    let made_by = "CREATE TABLE tenant_events (tenant varchar(20) NOT NULL, no int NOT NULL, topic text NOT NULL,
            body jsonb NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz,
            note text, PRIMARY KEY (tenant, no)) PARTITION BY HASH (tenant);
        CREATE TABLE tenant_events_0 PARTITION OF tenant_events FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE tenant_events_1 PARTITION OF tenant_events FOR VALUES WITH (MODULUS 2, REMAINDER 1)";
    let words = Words {
        table: "tenant_events",
        lane: "noop",
        insert: "INSERT INTO tenant_events (tenant, no, topic, body)
                 VALUES ('a/b%' || {n} % 3, {n}, 'order.created', '{\"n\": {n}}')",
        insert_many: "INSERT INTO tenant_events (tenant, no, topic, body)
                      SELECT 'a/b%' || n % 3, n, 'order.created', jsonb_build_object('n', n)
                      FROM generate_series({from}, {to}) AS n",
        insert_later: Err(NO_TIME),
        insert_sent: Ok("INSERT INTO tenant_events (tenant, no, topic, body, published_at)
                         VALUES ('a/b%' || {n} % 3, {n}, 'order.created', '{\"n\": {n}}', now())"),
        row: "no = {n}",
        reads: "CASE WHEN published_at IS NULL THEN 'open' ELSE 'sent' END",
        leaves: false,
        attempts: None,
        error: None,
        open: Ok("published_at = NULL"),
        close: Ok("published_at = now()"),
        touch: "note = 'seen'",
        key_comes_again: Err("the number of a tenant is its producer's to keep unique"),
    };
    let layout = layout.expect("a layout");
    Described { name: "composite", layout, made_by: Some(made_by), words }
}
