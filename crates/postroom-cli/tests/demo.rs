//! The demo keeps its promise.

use crate::command::Folder;
use postroom_testkit::{MariaDb, Signal};
use std::time::Duration;

#[test]
fn nothing_is_lost_and_the_figures_add_up() {
    let folder = Folder::new();
    let figures = folder.run(&["demo", "--messages", "300", "--json"]).json();
    assert_eq!(figures["committed"], 300, "{figures}");
    assert_eq!(figures["delivered"], 300, "{figures}");
    assert_eq!(figures["lost"], 0, "{figures}");
    assert_eq!(figures["dead"], 0, "{figures}");
    assert!(figures["retries"].as_u64().unwrap() > 0, "the receiver goes away twice: {figures}");
    assert!(figures["p99_ms"].as_f64() >= figures["p50_ms"].as_f64(), "{figures}");
    assert!(figures["duplicates"].is_u64(), "{figures}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
}

#[tokio::test]
async fn it_runs_on_a_database_that_is_lent_to_it() {
    let database = MariaDb::shared().await.database().await;
    let folder = Folder::new();
    folder.run(&["migrate", "--database", database.url()]).ok();
    let demo = ["demo", "--messages", "100", "--json", "--database", database.url()];
    let figures = folder.run(&demo).json();
    assert_eq!((&figures["committed"], &figures["delivered"]), (&100.into(), &100.into()));
    assert_eq!((&figures["lost"], &figures["dead"]), (&0.into(), &0.into()), "{figures}");
}

#[tokio::test]
async fn ctrl_c_ends_it_with_the_proof() {
    let folder = Folder::new();
    let mut demo = folder.start(&["demo", "--rate", "100"]);
    demo.wait_for_line("delivered", Duration::from_secs(60)).await;
    demo.signal(Signal::SIGINT);
    assert!(demo.wait(Duration::from_secs(30)).await.success(), "{}", demo.stderr());
    let proof = demo.stdout();
    assert!(proof.lines().any(|line| line.starts_with("lost ") && line.ends_with(" 0")), "{proof}");
}
