//! Applications and people on SQLite. There is one writer: transactions are short, and take the lock at their
//! beginning.

use super::books::Event;
use super::hands::some;
use super::producers::pause;
use super::{Database, Found, LANES, Run, below};
use postroom_core::Key;
use rand::RngExt;
use rand::rngs::StdRng;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// How many messages there may be for each second of a run.
const PER_SECOND: usize = 600;
/// How long they wait for other writers.
const BUSY_WAIT: Duration = Duration::from_secs(30);

/// `?1` id, `?2` lane, `?3` seconds until it is due, `?4` status, `?5` its number, or null for the next one.
const INSERT: &str = "
    INSERT INTO integration_outbox
        (id, source_stream_id, source_event_id, integration_type, event_type, payload, due_at, status, seq)
    VALUES (?1, 's', ?1, ?2, 't', '{\"n\": 1}',
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+' || ?3 || ' seconds'), ?4, ?5)
    RETURNING seq";

const OPEN: &str = "SELECT count(*) FROM integration_outbox WHERE status IN ('PENDING', 'FAILED')";
const LEFT: &str = "
    SELECT 'parcel ' || seq || ' of ' || integration FROM outbox_parcel
    UNION ALL SELECT 'claim ' || token || ' of ' || worker FROM outbox_claim
    UNION ALL
    SELECT 'delivery of ' || d.message_id || ' in state ' || d.state || ' under ' || coalesce(d.claim, '-')
    FROM outbox_delivery AS d LEFT JOIN integration_outbox AS m ON m.id = d.message_id
    WHERE m.status IS NOT 'DEAD' OR d.state <> 'd' OR d.claim IS NOT NULL";
const STUCK: &str = "
    SELECT m.id || ' is open: ' || json_array(m.seq, m.status, m.due_at, m.integration_type, m.settled)
           || '; delivery ' || coalesce((
               SELECT json_array(d.state, d.due_at, d.claim, d.rescues, d.integration)
               FROM outbox_delivery AS d WHERE d.message_id = m.id), '-')
           || '; parcels ' || (
               SELECT json_group_array(p.integration) FROM outbox_parcel AS p WHERE p.message_id = m.id)
           || '; claims ' || (
               SELECT json_group_array(f.token) FROM outbox_in_flight AS f WHERE f.message_id = m.id)
    FROM integration_outbox AS m WHERE m.status IN ('PENDING', 'FAILED') LIMIT 5";
const UNLIKE: &str = "
    SELECT json_array(d.message_id, d.state, d.due_at, d.integration, m.status, m.due_at, m.integration_type)
    FROM outbox_delivery AS d JOIN integration_outbox AS m ON m.id = d.message_id
    WHERE d.integration <> m.integration_type LIMIT 5";

/// An outbox in a file of its own.
pub(super) struct File(TempDir);

impl File {
    pub(super) async fn migrated() -> Self {
        let file = Self(tempfile::tempdir().expect("a temporary folder"));
        postroom_store::migrate(&file.url()).await.expect("migrated");
        file
    }

    pub(super) fn url(&self) -> String {
        format!("sqlite://{}", self.0.path().join("outbox.db").display())
    }

    async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.0.path().join("outbox.db"))
            .busy_timeout(BUSY_WAIT);
        options.connect().await.expect("the file opens")
    }

    pub(super) async fn look(&self) -> Found {
        let mut file = self.connect().await;
        let statuses = sqlx::query("SELECT id, status FROM integration_outbox");
        let statuses = statuses.fetch_all(&mut file).await.expect("messages");
        let status = |row: &sqlx::sqlite::SqliteRow| (id(&row.get::<String, _>(0)), row.get(1));
        Found {
            open: sqlx::query_scalar(OPEN).fetch_one(&mut file).await.expect("a count"),
            left: texts(&mut file, LEFT).await,
            stuck: texts(&mut file, STUCK).await,
            unlike: texts(&mut file, UNLIKE).await,
            statuses: statuses.iter().map(status).collect(),
        }
    }
}

fn id(text: &str) -> Uuid {
    text.parse().expect("an id")
}

async fn texts(file: &mut SqliteConnection, sql: &'static str) -> Vec<String> {
    sqlx::query_scalar(sql).fetch_all(file).await.expect("rows")
}

async fn execute(file: &mut SqliteConnection, sql: &'static str) {
    sqlx::query(sql).execute(file).await.expect(sql);
}

async fn connect(run: &Run) -> SqliteConnection {
    match &run.database {
        Database::Sqlite(file) => file.connect().await,
        Database::Postgres(_) => unreachable!("they have a database of their own"),
    }
}

pub(super) async fn produce(run: Arc<Run>, number: u64) {
    let mut chance = run.chance(number);
    let mut file = connect(&run).await;
    let most = PER_SECOND
        * usize::try_from((run.ends_at - std::time::Instant::now()).as_secs()).unwrap_or(0);
    while run.is_on() && run.books.messages() < most {
        execute(&mut file, "BEGIN IMMEDIATE").await;
        let mut keys = Vec::new();
        let rows = if chance.random_bool(0.7) { 1 } else { below(&mut chance, 50) + 1 };
        for _ in 0..rows {
            keys.push(insert(&mut file, &mut chance).await);
        }
        if number == 0 {
            pause(&mut chance, 20).await;
        }
        if chance.random_bool(0.1) {
            execute(&mut file, "ROLLBACK").await;
            run.books.count(Event::RolledBack, keys.len());
        } else {
            execute(&mut file, "COMMIT").await;
            run.books.committed(keys);
        }
        pause(&mut chance, 12).await;
    }
}

async fn insert(file: &mut SqliteConnection, chance: &mut StdRng) -> Key {
    let id = Uuid::new_v4();
    let delay = match below(chance, 20) {
        0 => 0.2,
        1 => 1.3,
        _ => 0.0,
    };
    // A few have a number that lies below every mark.
    let seq = chance.random_bool(0.02).then(|| -chance.random_range(1..i64::MAX));
    let row = sqlx::query(INSERT)
        .bind(id.to_string())
        .bind(LANES[below(chance, LANES.len())])
        .bind(delay)
        .bind(if chance.random_bool(0.03) { "FAILED" } else { "PENDING" })
        .bind(seq)
        .fetch_one(file)
        .await
        .expect("insert");
    Key { seq: row.get(0), id }
}

/// Changes messages by plain SQL.
pub(super) async fn edit(run: Arc<Run>, number: u64) {
    let mut chance = run.chance(200 + number);
    let mut file = connect(&run).await;
    while run.is_on() {
        let keys = some(&run, &mut chance, 6);
        let set = match below(&mut chance, 5) {
            0 => "due_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+0.' || abs(random() % 3) || ' seconds')
                  WHERE status IN ('PENDING', 'FAILED')"
                .to_owned(),
            1 => format!(
                "integration_type = '{}' WHERE status IN ('PENDING', 'FAILED')",
                LANES[below(&mut chance, LANES.len())]
            ),
            2 => {
                keys.iter().for_each(|key| run.books.may_be_sent_by_hand(key.id));
                "status = 'SENT' WHERE status IN ('PENDING', 'FAILED')".to_owned()
            }
            _ => {
                keys.iter().for_each(|key| run.books.cause(key.id, "opened by hand"));
                "status = 'PENDING' WHERE status = 'SENT'".to_owned()
            }
        };
        let ids: Vec<String> = keys.iter().map(|key| key.id.to_string()).collect();
        let sql = format!(
            "UPDATE integration_outbox SET {set} AND id IN (SELECT value FROM json_each(?1))"
        );
        execute(&mut file, "BEGIN IMMEDIATE").await;
        let changed = sqlx::query(AssertSqlSafe(sql))
            .bind(serde_json::to_string(&ids).expect("a list"))
            .execute(&mut file)
            .await
            .expect("changed");
        let end = if chance.random_bool(0.9) { "COMMIT" } else { "ROLLBACK" };
        execute(&mut file, end).await;
        run.books.count(Event::Edit, usize::try_from(changed.rows_affected()).unwrap_or(0));
        pause(&mut chance, 4).await;
    }
}
