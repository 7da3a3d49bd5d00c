//! The hot statements go by their index, whatever statistics the server took.

use super::statements;
use postroom_testkit::{MariaDatabase, MariaDb};
use sqlx::{AssertSqlSafe, MySqlConnection, Row as _};

const LANE_ROWS: &str = "
    INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    SELECT 's', CONCAT('e', seq), CONCAT('lane-', seq % 2), 't', '{}' FROM seq_1_to_4000";
const CLAIM_SOME: &str = "
    INSERT INTO outbox_claim VALUES
        (x'00112233445566778899aabbccddeeff', 'w', UTC_TIMESTAMP(6), FALSE, FALSE,
         x'000102030405060708090a0b0c0d0e0f');
    UPDATE outbox_delivery SET claim = x'00112233445566778899aabbccddeeff'
    WHERE integration = 'lane-1' LIMIT 500";
const TAKE_STATISTICS: &str =
    "ANALYZE TABLE integration_outbox, outbox_delivery, outbox_claim PERSISTENT FOR ALL";

async fn outbox() -> (MariaDatabase, MySqlConnection) {
    let database = MariaDb::shared().await.database().await;
    crate::migrate(database.url()).await.expect("migrated");
    let connection = database.connection().await;
    (database, connection)
}

async fn execute(connection: &mut MySqlConnection, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(connection).await.expect("executed");
}

/// Puts values in the places of parameters, and reads how the statement would be run: the
/// tables, how they are read, by which key, and what else is done, step by step.
async fn plan(
    connection: &mut MySqlConnection,
    statement: &str,
    values: &[&str],
) -> Vec<(String, String, String, String)> {
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
        .map(|row| (text(row, "table"), text(row, "type"), text(row, "key"), text(row, "Extra")))
        .collect()
}

#[tokio::test]
async fn hot_statements_go_by_their_index() {
    let (_database, mut connection) = outbox().await;
    let due = format!("{}FOR UPDATE SKIP LOCKED", statements::DUE);
    let is_due = format!("SELECT {}", statements::IS_DUE);
    let token = "x'00112233445566778899aabbccddeeff'";
    let hundred = (1..=100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let claim = format!(
        "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = {token} \
         WHERE seq IN ({hundred}) AND queue = 0"
    );
    let held = format!(
        "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
         WHERE seq IN ({hundred}) AND claim = {token} FOR UPDATE"
    );
    let content = format!(
        "SELECT m.id FROM integration_outbox AS m FORCE INDEX (PRIMARY) \
         WHERE m.seq IN ({hundred}) AND m.status IN ('PENDING', 'FAILED')"
    );
    let mark = format!(
        "UPDATE integration_outbox FORCE INDEX (PRIMARY) SET status = 'SENT' \
         WHERE seq IN ({hundred})"
    );
    let gone = format!(
        "DELETE gone FROM outbox_delivery AS gone FORCE INDEX (PRIMARY) \
         WHERE gone.seq IN ({hundred})"
    );
    let expired = format!("{} LIMIT 10", statements::EXPIRED);
    let lane: &[&str] = &["0", "'lane-0'"];
    let lane_rows: &[&str] = &["0", "'lane-0'", "100"];
    // Statistics of nothing, of a large backlog that is claimed in part, of tables emptied since.
    for prepare in [
        TAKE_STATISTICS.to_owned(),
        format!("{LANE_ROWS}; {CLAIM_SOME}; {TAKE_STATISTICS}"),
        format!(
            "DELETE FROM outbox_delivery; DELETE FROM integration_outbox; {TAKE_STATISTICS}; \
             {LANE_ROWS}"
        ),
    ] {
        execute(&mut connection, &prepare).await;
        let backlog: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM outbox_delivery")
            .fetch_one(&mut connection)
            .await
            .expect("a count");
        if backlog == 0 {
            // Every plan is good for an empty table.
            continue;
        }
        for (statement, values, key) in [
            (&is_due, lane, "outbox_delivery_queue"),
            (&due, lane_rows, "outbox_delivery_queue"),
            (&claim, &[], "PRIMARY"),
            (&held, &[], "PRIMARY"),
            (&content, &[], "PRIMARY"),
            (&mark, &[], "PRIMARY"),
            (&gone, &[], "PRIMARY"),
            (&expired, &["x'000102030405060708090a0b0c0d0e00'"], "outbox_claim_relay"),
        ] {
            let steps = plan(&mut connection, statement, values).await;
            let on_table: Vec<_> = steps.iter().filter(|(table, ..)| !table.is_empty()).collect();
            assert!(!on_table.is_empty(), "{statement}");
            for (table, how, found, extra) in on_table {
                // The relay of a claim is looked up by its id.
                let key = if table == "alive" { "PRIMARY" } else { key };
                assert_eq!(found, key, "{table} in {statement}\nafter {prepare}\n{steps:?}");
                // Claims are few, and read by their index from its beginning.
                let looks_up = ["range", "ref", "eq_ref", "const"].contains(&how.as_str())
                    || (table == "c" && how == "index");
                assert!(looks_up, "{statement}\nafter {prepare}\n{steps:?}");
                assert!(!extra.contains("filesort"), "{statement}\nafter {prepare}\n{steps:?}");
            }
        }
    }
}
