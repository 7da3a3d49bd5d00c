//! What is different about layouts on SQLite: one file for all ledgers, and tables of any kind.

use crate::taking::{all, settlement, wish};
use postroom_core::{Fate, Filter, Store};
use postroom_store::layout::{Destination, Dialect, Feed};
use postroom_store::{Layout, MigrateOptions, OpenOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{AssertSqlSafe, Row as _};
use std::sync::Arc;
use tempfile::TempDir;

fn events() -> Layout {
    let to = Some(Destination::One("noop".to_owned()));
    Layout { to, ..Layout::built_in("events", Dialect::Sqlite).expect("a built-in layout") }
}

fn custom(key: &str) -> Layout {
    let layout = Layout::from_toml(&format!(
        r#"
        table = "rows"
        key = ["{key}"]
        to = "noop"
        message = {{ event_type = "'t'", payload = "m.body" }}
        state = {{ status = "CASE WHEN m.done THEN 'SENT' ELSE 'PENDING' END" }}
        write = {{ sent = {{ done = "true" }} }}
        "#
    ));
    layout.expect("a layout")
}

fn url(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("shop.db").display())
}

fn with(layout: &Layout) -> MigrateOptions {
    MigrateOptions { layout: Some(Arc::new(layout.clone())), ..MigrateOptions::default() }
}

async fn migrate(folder: &TempDir, layout: &Layout) -> Result<(), String> {
    let done = postroom_store::migrate_with(&url(folder), &with(layout)).await;
    done.map(|_| ()).map_err(|error| error.to_string())
}

async fn by_hand(folder: &TempDir, sql: &str) -> SqlitePool {
    let options =
        SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.expect("the file opens");
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&pool).await.expect("done");
    pool
}

async fn store(folder: &TempDir, layout: Option<Layout>) -> Arc<dyn Store> {
    let options = OpenOptions { layout: layout.map(Arc::new), ..OpenOptions::default() };
    postroom_store::open(&url(folder), &options).await.expect("store")
}

/// The ids of all that waits for `noop`, which is delivered.
async fn delivered(store: &dyn Store) -> Vec<String> {
    let batches = store.take(&wish(store, &all("noop")).await).await.expect("taken");
    for batch in &batches {
        store.settle(&[settlement(batch, &Fate::Sent)]).await.expect("settled");
    }
    let taken = batches.iter().flat_map(|batch| &batch.messages);
    taken.map(|taken| taken.message.id.to_string()).collect()
}

#[tokio::test]
async fn a_file_holds_several_ledgers_beside_postrooms_own_outbox() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ddl = "CREATE TABLE rows (id TEXT PRIMARY KEY, body TEXT, done BOOLEAN)";
    let pool = by_hand(&folder, ddl).await;
    migrate(&folder, &custom("id")).await.expect("one ledger");
    migrate(&folder, &events()).await.expect("another");
    postroom_store::migrate(&url(&folder)).await.expect("Postroom's own");
    let execute = async |sql: &'static str| {
        sqlx::raw_sql(sql).execute(&pool).await.expect("done");
    };
    execute("INSERT INTO rows (id, body) VALUES ('a', '1')").await;
    execute(
        "INSERT INTO postroom_outbox_events_integration_outbox
             (source_stream_id, source_event_id, integration_type, event_type, payload)
         VALUES ('s', 'event', 'noop', 't', '2')",
    )
    .await;
    execute(
        "INSERT INTO integration_outbox (id, source_stream_id, source_event_id, integration_type, event_type, payload)
         VALUES ('0198c1f0-0000-7000-8000-0000000000aa', 's', 'own', 'noop', 't', '3')",
    )
    .await;
    let (rows, own) = (store(&folder, Some(custom("id"))).await, store(&folder, None).await);
    for (store, id) in [
        (&rows, "a"),
        (&store(&folder, Some(events())).await, "event"),
        (&own, "0198c1f0-0000-7000-8000-0000000000aa"),
    ] {
        store.ready().await.expect("ready");
        assert_eq!(store.diagnose().await.expect("a look").len(), 0);
        assert_eq!(delivered(&**store).await, [id], "each its own");
    }

    postroom_store::remove_ledger(&url(&folder), &events()).await.expect("removed");
    let left = "SELECT name FROM sqlite_schema WHERE name LIKE 'postroom_outbox_events%'";
    let left: Vec<String> = sqlx::query_scalar(left).fetch_all(&pool).await.expect("the names");
    assert_eq!(left, [""; 0]);
    execute("INSERT INTO rows (id, body) VALUES ('b', '1')").await;
    assert_eq!(delivered(&*rows).await, ["b"], "the others stay");
    own.ready().await.expect("ready");
}

#[tokio::test]
async fn two_tables_whose_ledgers_would_have_one_name_are_told_apart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ddl = "CREATE TABLE rows (id TEXT PRIMARY KEY, body TEXT, done BOOLEAN);
               CREATE TABLE public_rows (id TEXT PRIMARY KEY, body TEXT, done BOOLEAN)";
    by_hand(&folder, ddl).await;
    migrate(&folder, &custom("id")).await.expect("migrated");
    let other = Layout { table: "public_rows".to_owned(), ..custom("id") };
    let refused = migrate(&folder, &other).await.expect_err("the names are taken");
    assert!(refused.contains("postroom adopt rows --remove"), "{refused}");
    let refused =
        postroom_store::remove_ledger(&url(&folder), &other).await.expect_err("not its own");
    assert!(refused.to_string().contains("those of the ledger of rows"), "{refused}");
}

#[tokio::test]
async fn several_destinations_need_postrooms_own_outbox_in_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let several = Destination::Several(vec!["noop".to_owned(), "file:{run_id}".to_owned()]);
    let several = Layout { to: Some(several), ..events() };
    let refused = migrate(&folder, &several).await.expect_err("no outbox");
    assert!(refused.contains("migrate that first"), "{refused}");
    postroom_store::migrate(&url(&folder)).await.expect("Postroom's own");
    migrate(&folder, &several).await.expect("migrated");
    // Whatever the producer's conflict clause, and whatever stands in the row: it is not refused.
    let long = "x".repeat(500);
    let pool = by_hand(
        &folder,
        &format!(
            "INSERT OR REPLACE INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
             VALUES ('{long}', '{long}', '{long}', 'a', x'ff'), ('b', 'r', 't', 'b', x'7b7d'), ('c', 'r', 't', 'c', 5);
             INSERT OR REPLACE INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
             VALUES ('b', 'r', 't', 'b', '{{}}')"
        ),
    )
    .await;
    // The first body is no text, and dies at its delivery.
    let written = "SELECT length(source_event_id) || ' ' || integration_type || ' '
                          || CASE integration_type WHEN 'file:r' THEN payload ELSE '' END
                   FROM integration_outbox ORDER BY seq";
    let written: Vec<String> =
        sqlx::query_scalar(written).fetch_all(&pool).await.expect("messages");
    assert_eq!(written[1..], ["1 file:r {}", "1 file:r 5"]);
    assert!(written[0].starts_with("100 file:xxx"), "{written:?}");
}

#[tokio::test]
async fn a_table_that_is_called_like_one_of_the_own_outbox_leaves_no_room_for_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    by_hand(&folder, "CREATE TABLE Outbox_Messages (id TEXT PRIMARY KEY)").await;
    let refused = postroom_store::migrate(&url(&folder)).await.expect_err("the name is taken");
    assert!(refused.to_string().contains("outbox_messages exists already"), "{refused}");
}

#[tokio::test]
async fn what_no_layout_could_be_for_is_not_proposed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = async |table: &str| {
        let proposed = postroom_store::propose_layout(&url(&folder), table).await;
        proposed.expect_err("refused").to_string()
    };
    assert!(refused("rows").await.contains("there is no file"));
    assert!(!folder.path().join("shop.db").exists(), "it is not made");
    by_hand(
        &folder,
        "CREATE TABLE without (id TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID;
         CREATE TABLE blobs (id BLOB PRIMARY KEY, body TEXT);
         CREATE TABLE amounts (id TEXT PRIMARY KEY, amount REAL)",
    )
    .await;
    assert!(refused("rows").await.contains("there is no table rows"));
    assert!(refused("without").await.contains("WITHOUT ROWID"));
    assert!(refused("blobs").await.contains("CREATE UNIQUE INDEX"));
    assert!(refused("amounts").await.contains("looks like a message's body"));
}

#[tokio::test]
async fn postrooms_own_table_has_no_layout() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    postroom_store::migrate(&url(&folder)).await.expect("migrated");
    let mut layout = custom("id");
    layout.table = "integration_outbox".to_owned();
    let refused = migrate(&folder, &layout).await.expect_err("it has a ledger");
    assert!(refused.contains("leave `layout` out"), "{refused}");
}

#[tokio::test]
async fn a_plan_says_everything_and_makes_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let planned = postroom_store::plan(&url(&folder), &with(&events())).await.expect("a plan");
    let names: Vec<_> = planned.iter().map(|work| work.name.as_str()).collect();
    assert_eq!(
        names,
        ["the table outbox_events", "ledger of outbox_events", "the layout of outbox_events"]
    );
    assert!(
        planned[2].sql.contains(
            "CREATE TRIGGER postroom_outbox_events_feed AFTER INSERT ON \"outbox_events\""
        )
    );
    assert!(!folder.path().join("shop.db").exists());
}

#[tokio::test]
async fn a_trigger_that_is_gone_is_found_and_made_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    migrate(&folder, &events()).await.expect("migrated");
    by_hand(&folder, "DROP TRIGGER postroom_outbox_events_feed").await;
    let options = OpenOptions { layout: Some(Arc::new(events())), ..OpenOptions::default() };
    let store = postroom_store::open(&url(&folder), &options).await.expect("store");
    let found = store.diagnose().await.expect("a look");
    let problem = "postroom_outbox_events_feed is missing";
    assert!(found.iter().any(|one| one.problem.contains(problem)), "{found:?}");
    migrate(&folder, &events()).await.expect("mended");
    assert!(store.diagnose().await.expect("a look").is_empty());
}

#[tokio::test]
async fn an_expression_that_does_not_fit_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    migrate(&folder, &events()).await.expect("migrated");
    let mut layout = events();
    layout.message.tenant_id = Some("no_such_function(m.run_id)".to_owned());
    let options = OpenOptions { layout: Some(Arc::new(layout)), ..OpenOptions::default() };
    let store = postroom_store::open(&url(&folder), &options).await.expect("store");
    let found = store.diagnose().await.expect("a look");
    let problem = "tenant_id does not fit: no such function: no_such_function";
    assert!(found.iter().any(|one| one.problem.contains(problem)), "{found:?}");
}

#[tokio::test]
async fn a_changed_layout_is_migrated_before_it_is_used() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    migrate(&folder, &events()).await.expect("migrated");
    let layout = Layout { to: Some(Destination::One("file:x".to_owned())), ..events() };
    let options = OpenOptions { layout: Some(Arc::new(layout.clone())), ..OpenOptions::default() };
    let store = postroom_store::open(&url(&folder), &options).await.expect("store");
    let refused = store.ready().await.expect_err("not migrated");
    assert!(refused.to_string().contains("has changed since it was migrated"), "{refused}");
    migrate(&folder, &layout).await.expect("migrated");
    store.ready().await.expect("ready");
}

#[tokio::test]
async fn what_sqlite_cannot_have_is_refused_with_its_reason() {
    let polled = Layout { feed: Feed::Poll, ..events() };
    let rows = |ddl: &'static str, key: &str, reason: &'static str| (ddl, custom(key), reason);
    for (ddl, layout, reason) in [
        ("SELECT 1", polled, "leave `feed` out"),
        rows(
            "CREATE TABLE rows (id TEXT PRIMARY KEY, body TEXT, done BOOLEAN) WITHOUT ROWID",
            "id",
            "WITHOUT ROWID",
        ),
        rows("CREATE TABLE rows (id BLOB PRIMARY KEY, body TEXT, done BOOLEAN)", "id", "is a BLOB"),
        rows("CREATE TABLE rows (id TEXT, body TEXT, done BOOLEAN)", "id", "no unique index"),
        rows("CREATE TABLE rows (id TEXT PRIMARY KEY, done BOOLEAN)", "id", "has no column body"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        by_hand(&folder, ddl).await;
        let refused = migrate(&folder, &layout).await.expect_err(reason);
        assert!(refused.contains(reason), "{refused}");
    }
}

/// Rows have other numbers then, unless a column of theirs is the number.
#[tokio::test]
async fn a_vacuum_loses_no_row_and_counts_none_as_gone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ddl = "CREATE TABLE rows (id TEXT PRIMARY KEY, body TEXT, done BOOLEAN)";
    let pool = by_hand(&folder, ddl).await;
    migrate(&folder, &custom("id")).await.expect("migrated");
    for sql in [
        "INSERT INTO rows (id, body) VALUES ('a', '1'), ('b', '2'), ('c', '3'), ('d', '4')",
        "DELETE FROM rows WHERE id = 'a'",
        "VACUUM",
    ] {
        sqlx::raw_sql(sql).execute(&pool).await.expect("done");
    }
    let options = OpenOptions { layout: Some(Arc::new(custom("id"))), ..OpenOptions::default() };
    let store = postroom_store::open(&url(&folder), &options).await.expect("store");
    let quotas = all("noop");
    let batches = store.take(&wish(&*store, &quotas).await).await.expect("taken");
    let mut ids: Vec<_> = batches
        .iter()
        .flat_map(|batch| &batch.messages)
        .map(|taken| taken.message.id.to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["b", "c", "d"]);
    let vanished: u64 = store.vanished().iter().map(|one| one.messages).sum();
    assert_eq!(vanished, 1);
}

/// Neither the producer nor the lane stumbles over what a row may hold here.
#[tokio::test]
async fn a_body_that_is_no_json_is_delivered_as_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ddl = "CREATE TABLE rows (id TEXT PRIMARY KEY, body TEXT, done BOOLEAN)";
    let pool = by_hand(&folder, ddl).await;
    migrate(&folder, &custom("id")).await.expect("migrated");
    let insert = "INSERT INTO rows (id, body) VALUES (NULL, 'x'), ('a', 'plain \"text\"'), ('B', NULL), ('b', '{}')";
    sqlx::query(insert).execute(&pool).await.expect("the producer is not refused");
    let options = OpenOptions { layout: Some(Arc::new(custom("id"))), ..OpenOptions::default() };
    let store = postroom_store::open(&url(&folder), &options).await.expect("store");
    let quotas = all("noop");
    let batches = store.take(&wish(&*store, &quotas).await).await.expect("taken");
    let mut bodies: Vec<_> = batches
        .iter()
        .flat_map(|batch| &batch.messages)
        .map(|taken| (taken.message.id.to_string(), taken.message.payload.as_str().to_owned()))
        .filter(|(id, _)| !id.is_empty())
        .collect();
    bodies.sort();
    let body = |id: &str, body: &str| (id.to_owned(), body.to_owned());
    assert_eq!(bodies, [body("B", "null"), body("a", r#""plain \"text\"""#), body("b", "{}")]);
    for batch in &batches {
        store.settle(&[settlement(batch, &Fate::Sent)]).await.expect("settled");
    }
    let open = sqlx::query("SELECT id FROM rows WHERE done IS NOT TRUE AND id IS NOT NULL")
        .fetch_all(&pool)
        .await
        .expect("the rows");
    let open: Vec<String> = open.iter().map(|row| row.get(0)).collect();
    assert_eq!(open, [""; 0], "each by its own key");
    assert_eq!(
        store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("a list").len(),
        4
    );
}
