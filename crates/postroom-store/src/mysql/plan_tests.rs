//! The hot statements go by their index, whatever statistics the server took.

use super::claims::{HOLD, TAKE};
use super::content::CONTENT;
use super::key::Key;
use super::literal::filled;
use super::parcel::{ParcelKey, places};
use super::rescue::EXPIRED;
use super::session::Session;
use super::settle::SENT;
use postroom_testkit::{MariaDatabase, MariaDb, MySql};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

/// `lane-0`, as the store writes it.
const LANE: &str = "_utf8mb4 0x6c616e652d30";
const TOKEN: &str = "x'00112233445566778899aabbccddeeff'";
const EMPTY: &str = "DELETE FROM outbox_parcel; DELETE FROM outbox_delivery; \
     DELETE FROM outbox_pending_edit; DELETE FROM integration_outbox";
const TAKE_STATISTICS: &str = "ANALYZE TABLE integration_outbox, outbox_parcel, outbox_delivery, outbox_claim, \
     outbox_pending_edit";

/// As many messages in parcels as deliveries, in two lanes.
const BACKLOG: &str = "
    INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload, status)
    WITH RECURSIVE
    digit (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digit WHERE n < 15),
    number (n) AS (SELECT a.n + 16 * b.n + 256 * c.n FROM digit AS a, digit AS b, digit AS c)
    SELECT 's', CONCAT('e', n), CONCAT('lane-', n % 2), 't', '{}', IF(n % 4 < 2, 'PENDING', 'FAILED')
    FROM number";
const CLAIM_SOME: &str = "
    INSERT INTO outbox_claim (token, worker, since, relay)
    VALUES (x'00112233445566778899aabbccddeeff', 'w', UTC_TIMESTAMP(6),
            x'000102030405060708090a0b0c0d0e0f');
    UPDATE outbox_delivery SET claim = x'00112233445566778899aabbccddeeff'
    WHERE integration = 'lane-1' LIMIT 500";
/// Somebody changes half of it by hand.
const EDIT_SOME: &str =
    "UPDATE integration_outbox SET due_at = due_at - INTERVAL 1 SECOND WHERE seq % 4 < 2";

pub(super) async fn execute(connection: &mut Session, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(connection).await.expect("executed");
}

/// How one table is read.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) table: String,
    pub(super) how: String,
    pub(super) key: String,
    key_length: String,
    extra: String,
}

/// Puts values in the places of parameters, and reads how the statement would be run.
pub(super) async fn plan(connection: &mut Session, statement: &str, values: &[&str]) -> Vec<Step> {
    let mut sql = "EXPLAIN ".to_owned();
    let mut values = values.iter();
    for part in statement.split_inclusive('?') {
        match part.strip_suffix('?') {
            Some(before) => {
                sql.push_str(before);
                sql.push_str(values.next().expect("a value for each parameter"));
            }
            None => sql.push_str(part),
        }
    }
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await.expect("a plan");
    let text = |row: &sqlx::mysql::MySqlRow, name: &str| {
        row.try_get::<Option<String>, _>(name).expect("a column").unwrap_or_default()
    };
    rows.iter()
        .map(|row| Step {
            table: text(row, "table"),
            how: text(row, "type"),
            key: text(row, "key"),
            key_length: text(row, "key_len"),
            extra: text(row, "Extra"),
        })
        .filter(|step| !step.table.is_empty())
        .collect()
}

/// A statement, its parameters, and by which key each table is read, in order.
struct Hot {
    sql: String,
    values: Vec<&'static str>,
    keys: Vec<(&'static str, &'static str)>,
}

/// Parcels, messages and deliveries by key, a hundred at a time.
fn hot_statements() -> Vec<Hot> {
    let hundred = || (1..=100).map(|seq| Key { seq, id: Uuid::now_v7() });
    let seqs = super::literal::numbers(hundred().map(|key| key.seq));
    let ids: Vec<Uuid> = hundred().map(|key| key.id).collect();
    let ids = super::literal::ids(&ids);
    let of_lane = |message| ParcelKey { integration: "lane-0".into(), message };
    let parcels = places(&hundred().map(of_lane).collect::<Vec<_>>());
    let lane = [("lane", LANE), ("mark", "100"), ("rows", "100"), ("place", "0"), ("queue", "0")];
    let of = |sql: &str, places: &[(&str, &str)], keys: &[(&'static str, &'static str)]| Hot {
        sql: filled(sql, places),
        values: Vec::new(),
        keys: keys.to_vec(),
    };
    vec![
        of(
            include_str!("sql/look.sql"),
            &lane,
            &[
                ("outbox_pending_edit", "PRIMARY"),
                ("outbox_parcel", "PRIMARY"),
                ("outbox_delivery", "outbox_delivery_queue"),
            ],
        ),
        of(include_str!("sql/take_parcels.sql"), &lane, &[("outbox_parcel", "PRIMARY")]),
        of(include_str!("sql/sweep.sql"), &lane, &[("outbox_parcel", "PRIMARY")]),
        Hot {
            sql: format!("{} FOR UPDATE SKIP LOCKED", filled(TAKE, &[])),
            values: vec!["0", LANE, "100"],
            keys: vec![("outbox_delivery", "outbox_delivery_queue")],
        },
        of(
            HOLD,
            &[("token", TOKEN), ("ids", &ids), ("queue", "0")],
            &[("outbox_delivery", "PRIMARY")],
        ),
        of(
            include_str!("sql/held_parcels.sql"),
            &[("parcels", &parcels)],
            &[("p", "PRIMARY"), ("d", "PRIMARY")],
        ),
        of(
            include_str!("sql/lock_deliveries.sql"),
            &[("ids", &ids), ("fence", &format!("claim = {TOKEN}"))],
            &[("outbox_delivery", "PRIMARY")],
        ),
        of(
            include_str!("sql/lock_messages.sql"),
            &[("index", "PRIMARY"), ("which", &format!("seq IN ({seqs})"))],
            &[("integration_outbox", "PRIMARY")],
        ),
        of(CONTENT, &[("columns", "m.id"), ("seqs", &seqs)], &[("m", "PRIMARY"), ("d", "PRIMARY")]),
        of(
            SENT,
            &[("at", "UTC_TIMESTAMP(6)"), ("token", TOKEN), ("seqs", &seqs)],
            &[("integration_outbox", "PRIMARY")],
        ),
        of(
            include_str!("sql/recorded.sql"),
            &[("ids", &ids)],
            &[("integration_outbox", "outbox_id")],
        ),
        Hot {
            sql: filled(EXPIRED, &[("limit", "10")]),
            values: vec!["x'000102030405060708090a0b0c0d0e00'"],
            keys: vec![("c", "outbox_claim_relay"), ("alive", "PRIMARY")],
        },
        of(include_str!("sql/in_flight.sql"), &[], &[("outbox_claim", "outbox_claim_parcels")]),
    ]
}

/// Statements that lock or delete one row, with the length of its whole key: whatever else is in the table
/// is not read, and not waited for.
const BY_WHOLE_KEY: [(&str, &str); 6] = [
    (include_str!("sql/end_parcels.sql"), "526"),
    (include_str!("sql/forget_edits.sql"), "490"),
    (include_str!("sql/forget_orphans.sql"), "36"),
    (include_str!("sql/settle_sent_delete.sql"), "8"),
    (include_str!("sql/forget_attempts.sql"), "8"),
    (include_str!("sql/forget_relay.sql"), "16"),
];

async fn single_rows_go_by_their_whole_key(connection: &mut Session) {
    let id = format!("'{}'", Uuid::now_v7());
    for (sql, key_length) in BY_WHOLE_KEY {
        // The number of a note is in the place of an id.
        let id = if sql.contains("outbox_pending_edit") { "4" } else { &id };
        let places = [("lane", LANE), ("seq", "4"), ("id", id), ("relay", TOKEN)];
        let steps = plan(connection, &filled(sql, &places), &[]).await;
        let found: Vec<&str> = steps.iter().map(|step| &*step.key_length).collect();
        assert_eq!(found, [key_length], "{sql}\n{steps:#?}");
    }
}

async fn hot_statements_go_by_their_index(database: &MariaDatabase) {
    crate::migrate(database.url()).await.expect("migrated");
    let connection = Session::open(database.connection().await, false).await;
    let mut connection = connection.expect("a session");
    // Nearly empty tables are read whole where a statement lets the server choose.
    execute(&mut connection, &format!("{BACKLOG} LIMIT 3; {TAKE_STATISTICS}")).await;
    single_rows_go_by_their_whole_key(&mut connection).await;
    execute(&mut connection, EMPTY).await;
    // Statistics of a large backlog that is claimed in part, and of tables emptied since.
    for prepare in [
        format!("{BACKLOG}; {CLAIM_SOME}; {EDIT_SOME}; {TAKE_STATISTICS}"),
        format!("{EMPTY}; {TAKE_STATISTICS}; {BACKLOG}; {EDIT_SOME}"),
    ] {
        execute(&mut connection, &prepare).await;
        single_rows_go_by_their_whole_key(&mut connection).await;
        for Hot { sql, values, keys } in hot_statements() {
            let steps = plan(&mut connection, &sql, &values).await;
            let short = &sql[..sql.len().min(300)];
            for (table, key) in keys {
                let step = steps.iter().find(|step| step.table == table);
                let step = step.unwrap_or_else(|| panic!("{table} in {short}\n{steps:#?}"));
                assert_eq!(step.key, key, "{short}\n{steps:#?}");
                // Claims are few, and read by their index from its beginning.
                let looks_up = ["range", "ref", "eq_ref", "const"].contains(&step.how.as_str())
                    || (["c", "outbox_claim"].contains(&table) && step.how == "index");
                assert!(looks_up, "{short}\n{steps:#?}");
                assert!(!step.extra.contains("filesort"), "{short}\n{steps:#?}");
            }
        }
    }
}

#[tokio::test]
async fn hot_statements_go_by_their_index_on_mariadb() {
    let database = MariaDb::shared().await.database().await;
    hot_statements_go_by_their_index(&database).await;
}

#[tokio::test]
async fn hot_statements_go_by_their_index_on_mysql() {
    let database = MySql::shared().await.database().await;
    hot_statements_go_by_their_index(&database).await;
}
