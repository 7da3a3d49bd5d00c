//! The laws of the kata: order and message are one, and a crash costs a repeat at most.

use crate::faults_outbox::{CLAIM_TIME, Outbox, SHORT_CLAIMS, SOON, arrivals, webhook};
use postroom::{NewMessage, enqueue};
use postroom_core::{Filter, Record};
use postroom_testkit::{Behaviour, Receiver, Request};
use serde_json::{Value, json};
use sqlx::Connection as _;
use std::collections::HashSet;
use std::time::Duration;

/// Makes each law a test on every database.
macro_rules! laws {
    ($($name:ident)+) => {
        mod mariadb {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Shop::mariadb().await).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Shop::postgres().await).await;
            })+
        }
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Shop::sqlite().await).await;
            })+
        }
    };
}

laws! {
    a_commit_keeps_both_order_and_message
    a_rollback_keeps_neither
    a_fault_between_the_two_keeps_neither
    the_dispatcher_publishes_and_marks_sent
    a_crash_between_publish_and_mark_has_no_double_effect
    a_claim_held_by_a_killed_process_moves_on_within_one_claim_time
    a_batch_that_fails_in_part_is_retried_in_part
}

const ORDERS: &str = "CREATE TABLE orders (id varchar(40) PRIMARY KEY, total int NOT NULL)";
const INSERT: &str = "INSERT INTO orders (id, total) VALUES ($1, $2)";
const INSERT_MARIADB: &str = "INSERT INTO orders (id, total) VALUES (?, ?)";

/// An application with orders, and its outbox in the same database.
struct Shop {
    outbox: Outbox,
    on: On,
}

#[derive(Clone, Copy)]
enum On {
    MariaDb,
    Postgres,
    Sqlite,
}

/// How a transaction ends.
#[derive(Clone, Copy, Eq, PartialEq)]
enum End {
    Commit,
    Rollback,
    /// The program fails before it gets to either.
    Fault,
}

impl Shop {
    async fn mariadb() -> Self {
        let outbox = Outbox::mariadb().await;
        sqlx::query(ORDERS).execute(&mut outbox.mariadb_connection().await).await.unwrap();
        Self { outbox, on: On::MariaDb }
    }

    async fn postgres() -> Self {
        let outbox = Outbox::postgres().await;
        outbox.client().await.batch_execute(ORDERS).await.unwrap();
        Self { outbox, on: On::Postgres }
    }

    async fn sqlite() -> Self {
        let outbox = Outbox::sqlite().await;
        sqlx::query(ORDERS).execute(&mut outbox.sqlite_connection().await).await.unwrap();
        Self { outbox, on: On::Sqlite }
    }

    /// Writes an order and its message in one transaction of the application's own.
    async fn place_order(&self, id: &str, end: End) {
        let message = NewMessage::new("webhook:a", "order.created.v1")
            .stream(id)
            .json(&json!({ "orderId": id, "total": 100 }));
        match self.on {
            On::MariaDb => {
                let mut connection = self.outbox.mariadb_connection().await;
                let mut tx = connection.begin().await.unwrap();
                let insert = || sqlx::query(INSERT_MARIADB).bind(id).bind(100);
                insert().execute(&mut *tx).await.unwrap();
                enqueue(&mut tx, message).await.unwrap();
                match end {
                    End::Commit => tx.commit().await.unwrap(),
                    End::Rollback => tx.rollback().await.unwrap(),
                    End::Fault => assert!(insert().execute(&mut *tx).await.is_err()),
                }
            }
            On::Postgres => {
                let mut client = self.outbox.client().await;
                let mut tx = client.transaction().await.unwrap();
                tx.execute(INSERT, &[&id, &100]).await.unwrap();
                enqueue(&mut tx, message).await.unwrap();
                match end {
                    End::Commit => tx.commit().await.unwrap(),
                    End::Rollback => tx.rollback().await.unwrap(),
                    End::Fault => assert!(tx.execute(INSERT, &[&id, &100]).await.is_err()),
                }
            }
            On::Sqlite => {
                let mut connection = self.outbox.sqlite_connection().await;
                let mut tx = connection.begin().await.unwrap();
                let insert = || sqlx::query(INSERT).bind(id).bind(100);
                insert().execute(&mut *tx).await.unwrap();
                enqueue(&mut tx, message).await.unwrap();
                match end {
                    End::Commit => tx.commit().await.unwrap(),
                    End::Rollback => tx.rollback().await.unwrap(),
                    End::Fault => assert!(insert().execute(&mut *tx).await.is_err()),
                }
            }
        }
    }

    async fn orders(&self) -> i64 {
        let count = "SELECT count(*) FROM orders";
        match self.on {
            On::MariaDb => sqlx::query_scalar(count)
                .fetch_one(&mut self.outbox.mariadb_connection().await)
                .await
                .unwrap(),
            On::Postgres => self.outbox.client().await.query_one(count, &[]).await.unwrap().get(0),
            On::Sqlite => sqlx::query_scalar(count)
                .fetch_one(&mut self.outbox.sqlite_connection().await)
                .await
                .unwrap(),
        }
    }

    async fn messages(&self) -> Vec<Record> {
        let mut all =
            self.outbox.store.list(&Filter { limit: 1_000, ..Filter::default() }).await.unwrap();
        all.reverse();
        all
    }
}

async fn a_commit_keeps_both_order_and_message(shop: Shop) {
    shop.place_order("ord_1", End::Commit).await;
    assert_eq!(shop.orders().await, 1);
    let messages = shop.messages().await;
    assert_eq!(messages.len(), 1);
    let message = &messages[0].message;
    assert_eq!(
        (message.event_type.as_str(), message.stream_id.as_str()),
        ("order.created.v1", "ord_1")
    );
    let payload: Value = serde_json::from_str(message.payload.as_str()).unwrap();
    assert_eq!(payload, json!({ "orderId": "ord_1", "total": 100 }));
    assert_eq!(messages[0].status, "PENDING");
}

async fn a_rollback_keeps_neither(shop: Shop) {
    shop.place_order("ord_1", End::Rollback).await;
    assert_eq!((shop.orders().await, shop.messages().await.len()), (0, 0));
}

async fn a_fault_between_the_two_keeps_neither(shop: Shop) {
    shop.place_order("ord_1", End::Fault).await;
    assert_eq!((shop.orders().await, shop.messages().await.len()), (0, 0));
    shop.place_order("ord_1", End::Commit).await;
    assert_eq!((shop.orders().await, shop.messages().await.len()), (1, 1));
}

async fn the_dispatcher_publishes_and_marks_sent(shop: Shop) {
    let receiver = Receiver::start();
    for id in ["ord_1", "ord_2"] {
        shop.place_order(id, End::Commit).await;
    }
    let config = shop.outbox.configure("", &webhook(&receiver, ""));
    let pass = shop.outbox.folder().run(&["run", "--once", "--config", &config, "--json"]).json();
    assert_eq!((&pass["taken"], &pass["sent"]), (&json!(2), &json!(2)), "{pass}");
    let mut bodies: Vec<Value> = receiver.requests().iter().map(Request::json).collect();
    bodies.sort_by_key(|body| body["orderId"].to_string());
    let order = |id: &str| json!({ "orderId": id, "total": 100 });
    assert_eq!(bodies, [order("ord_1"), order("ord_2")]);
    for record in shop.messages().await {
        assert_eq!((record.status.as_str(), record.message.attempts), ("SENT", 0));
        assert!(record.sent_at.is_some());
    }
}

/// A receiver that books each event id once.
fn booked(receiver: &Receiver) -> i64 {
    let mut seen = HashSet::new();
    receiver
        .requests()
        .iter()
        .filter(|request| seen.insert(request.header("idempotency-key").unwrap().to_owned()))
        .map(|request| request.json()["total"].as_i64().unwrap())
        .sum()
}

async fn a_crash_between_publish_and_mark_has_no_double_effect(shop: Shop) {
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    shop.place_order("ord_1", End::Commit).await;
    let id = &shop.messages().await[0].message.id;
    let mut relay = shop.outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    receiver.wait_for(1, SOON).await;
    let blocked = shop.outbox.block_completion(id).await;
    receiver.release();
    // The relay knows that it is delivered, and cannot say so.
    relay.wait_for_line("phase=\"SENT\"", SOON).await;
    shop.outbox.crash(&mut relay).await;
    blocked.end().await;
    assert_eq!(shop.outbox.record(id).await.status, "CLAIMED");

    let _next = shop.outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    let sent = shop.outbox.wait_for(id, "SENT").await;
    assert_eq!(sent.message.attempts, 0);
    assert_eq!(arrivals(&receiver), [(sent.message.event_id, 2)].into(), "at least once");
    assert_eq!(booked(&receiver), 100, "in effect once");
}

async fn a_claim_held_by_a_killed_process_moves_on_within_one_claim_time(shop: Shop) {
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    for n in 0..5 {
        shop.place_order(&format!("ord_{n}"), End::Commit).await;
    }
    let ids: Vec<_> =
        shop.messages().await.iter().map(|record| record.message.id.clone()).collect();
    let mut relay = shop.outbox.relay(SHORT_CLAIMS, &webhook(&receiver, "concurrency = 1"));
    receiver.wait_for(1, SOON).await;
    shop.outbox.wait_for_claims(5).await;
    let next = shop.outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    next.wait_for_line("the relay runs", SOON).await;
    shop.outbox.crash(&mut relay).await;
    let killed_at = shop.outbox.store.now().await.unwrap();
    shop.outbox.wait_for_all(&ids, "SENT").await;
    // Looking for expired claims and a loaded machine take their time too.
    let limit = killed_at + CLAIM_TIME + Duration::from_secs(30);
    for record in shop.outbox.records(&ids).await {
        assert_eq!(record.message.attempts, 0, "a rescue is no attempt");
        assert!(record.sent_at.unwrap() < limit, "killed {killed_at}, sent {:?}", record.sent_at);
    }
}

async fn a_batch_that_fails_in_part_is_retried_in_part(shop: Shop) {
    let receiver = Receiver::start();
    receiver.next([Behaviour::Accept, Behaviour::Answer(503), Behaviour::Accept]);
    receiver.next([Behaviour::Answer(500), Behaviour::Accept]);
    for n in 0..5 {
        shop.place_order(&format!("ord_{n}"), End::Commit).await;
    }
    let _relay = shop.outbox.relay("", &webhook(&receiver, "concurrency = 1"));
    let ids: Vec<_> =
        shop.messages().await.iter().map(|record| record.message.id.clone()).collect();
    shop.outbox.wait_for_all(&ids, "SENT").await;
    let attempts: Vec<u32> =
        shop.outbox.records(&ids).await.iter().map(|record| record.message.attempts).collect();
    assert_eq!(attempts, [0, 1, 0, 1, 0]);
    let mut counts: Vec<usize> = arrivals(&receiver).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 1, 2, 2]);
}
