//! `postroom eventlog`, as its users meet it.

use crate::command::Folder;
use crate::docs::pages::Page;
use kurrentdb::{Client, EventData, ReadStreamOptions, StreamMetadataBuilder, StreamPosition};
use postroom_testkit::{Authority, KurrentDbClient, Process, Signal, free_port};
use std::path::Path;
use std::time::Duration;

/// What the server logs once clients can connect.
pub(crate) const SERVED: &str = "the event log is served";
const LIMIT: Duration = Duration::from_secs(30);

/// A server on a port that stays the same, so that it can be started again.
pub(crate) struct Serving {
    listen: String,
    pub(crate) url: String,
}

impl Serving {
    pub(crate) fn new() -> Self {
        let port = free_port().unwrap();
        let listen = format!("127.0.0.1:{port}");
        let url = format!("esdb://{listen}?tls=false");
        Self { listen, url }
    }

    /// Starts it on the folder `log` in this one.
    pub(crate) async fn start(&self, folder: &Folder) -> Process {
        self.start_with(folder, &[]).await
    }

    async fn start_with(&self, folder: &Folder, more: &[&str]) -> Process {
        let args = ["eventlog", "serve", "--data", "log", "--listen", &self.listen];
        let server = folder.start(&[&args[..], more].concat());
        server.wait_for_line(SERVED, LIMIT).await;
        server
    }
}

pub(crate) fn client(url: &str) -> Client {
    Client::new(url.parse().unwrap()).unwrap()
}

fn events(count: usize) -> Vec<EventData> {
    (0..count).map(|_| EventData::binary("placed", vec![b'x'; 100].into())).collect()
}

async fn append(client: &Client, stream: &str, count: usize) {
    client.append_to_stream(stream, &Default::default(), events(count)).await.unwrap();
}

async fn count(client: &Client, stream: &str) -> usize {
    let options = ReadStreamOptions::default().position(StreamPosition::Start);
    let mut read = client.read_stream(stream, &options).await.unwrap();
    let mut count = 0;
    while read.next().await.unwrap().is_some() {
        count += 1;
    }
    count
}

#[tokio::test]
async fn a_served_log_stops_in_order_and_is_there_again() {
    let folder = Folder::new();
    let serving = Serving::new();
    for round in 1..=2 {
        let mut server = serving.start(&folder).await;
        let client = client(&serving.url);
        append(&client, "order-1", 10).await;
        assert_eq!(count(&client, "order-1").await, 10 * round);
        server.signal(Signal::SIGTERM);
        assert!(server.wait(LIMIT).await.success(), "{}", server.stderr());
        assert!(server.stderr().contains("the event log is closed"));
    }
    let checked = folder.run(&["eventlog", "check", "--data", "log", "--json"]).json();
    assert_eq!((checked["ok"].as_bool(), checked["events"].as_u64()), (Some(true), Some(20)));
}

#[tokio::test]
async fn a_folder_in_use_is_refused_by_every_command_but_backup() {
    let folder = Folder::new();
    let serving = Serving::new();
    let _server = serving.start(&folder).await;
    let second = Serving::new();
    for args in [
        &["eventlog", "serve", "--data", "log", "--listen", &second.listen][..],
        &["eventlog", "check", "--data", "log"],
        &["eventlog", "repair", "--data", "log"],
    ] {
        let answer = folder.run(args);
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.stderr.contains("log is in use by another server"), "{answer:?}");
    }
    let answer = folder.run(&["eventlog", "scavenge", "--data", "log"]);
    assert!(answer.stderr.contains("--url"), "{answer:?}");
}

#[tokio::test]
async fn a_backup_is_taken_while_the_server_runs_and_can_be_served() {
    let folder = Folder::new();
    let serving = Serving::new();
    let mut server = serving.start(&folder).await;
    let client = client(&serving.url);
    append(&client, "order-1", 50).await;
    let writing = tokio::spawn({
        let client = client.clone();
        async move {
            for _ in 0..50 {
                append(&client, "order-2", 5).await;
            }
        }
    });
    folder.run(&["eventlog", "backup", "copy", "--data", "log"]).ok();
    writing.await.unwrap();
    let again = folder.run(&["eventlog", "backup", "copy", "--data", "log"]);
    assert!(again.stderr.contains("copy is not empty"), "{again:?}");
    server.kill9();
    std::fs::rename(folder.path().join("log"), folder.path().join("lost")).unwrap();
    std::fs::rename(folder.path().join("copy"), folder.path().join("log")).unwrap();
    let _restored = serving.start(&folder).await;
    let client = self::client(&serving.url);
    assert_eq!(count(&client, "order-1").await, 50);
    append(&client, "order-1", 1).await;
}

#[tokio::test]
async fn a_damaged_log_does_not_start_until_it_is_repaired() {
    let folder = Folder::new();
    let serving = Serving::new();
    let mut server = serving.start(&folder).await;
    append(&client(&serving.url), "order-1", 20).await;
    server.signal(Signal::SIGTERM);
    server.wait(LIMIT).await;
    flip_byte(&folder.path().join("log/00000000.log"), 1_000);
    let refused = folder.run(&["eventlog", "serve", "--data", "log", "--listen", &serving.listen]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("damaged at offset"), "{refused:?}");
    assert!(refused.stderr.contains("of 00000000.log"), "{refused:?}");
    let checked = folder.run(&["eventlog", "check", "--data", "log"]);
    assert_eq!(checked.code, 1);
    assert!(checked.stdout.contains("damaged: 00000000.log at offset"), "{checked:?}");
    let repaired = folder.run(&["eventlog", "repair", "--data", "log"]).ok();
    assert!(repaired.contains("19 events"), "{repaired}");
    let _again = serving.start(&folder).await;
    let client = client(&serving.url);
    assert_eq!(count(&client, "order-1").await, 19);
    append(&client, "order-1", 1).await;
}

fn flip_byte(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 0x40;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn scavenging_works_on_a_folder_and_on_a_running_server() {
    let folder = Folder::new();
    let serving = Serving::new();
    let mut server = serving.start(&folder).await;
    let client = client(&serving.url);
    append(&client, "order-1", 100).await;
    let metadata = StreamMetadataBuilder::new().max_count(10).build();
    client.set_stream_metadata("order-1", &Default::default(), &metadata).await.unwrap();
    folder.run(&["eventlog", "scavenge", "--url", &serving.url]).ok();
    server.wait_for_line("scavenge finished", LIMIT).await;
    assert_eq!(count(&client, "order-1").await, 10);
    append(&client, "order-1", 10).await;
    server.signal(Signal::SIGTERM);
    server.wait(LIMIT).await;
    let scavenged = folder.run(&["eventlog", "scavenge", "--data", "log", "--json"]).json();
    assert_eq!(scavenged["events"], 10);
    let checked = folder.run(&["eventlog", "check", "--data", "log", "--json"]).json();
    assert_eq!((checked["ok"].as_bool(), checked["events"].as_u64()), (Some(true), Some(11)));
    let none = folder.run(&["eventlog", "scavenge", "--data", "nowhere"]);
    assert!(none.code == 1 && !folder.path().join("nowhere").exists(), "{none:?}");
}

#[tokio::test]
async fn tls_and_users_keep_strangers_out() {
    let folder = Folder::new();
    let authority = Authority::new();
    let files = authority.issue(&["localhost", "127.0.0.1"], "root");
    let users = folder.write("users", "admin:s3cret\n");
    let serving = Serving::new();
    let (certificate, key) = (files.certificate().to_str(), files.key().to_str());
    let more = [
        "--tls-certificate",
        certificate.unwrap(),
        "--tls-key",
        key.unwrap(),
        "--users",
        users.to_str().unwrap(),
    ];
    let server = serving.start_with(&folder, &more).await;
    assert!(server.stderr().contains("chmod 600"), "{}", server.stderr());
    let ca = authority.file();
    let url =
        |user: &str| format!("esdb://{user}{}?tls=true&tlsCaFile={}", serving.listen, ca.display());
    let admin = client(&url("admin:s3cret@"));
    append(&admin, "order-1", 1).await;
    for stranger in ["", "admin:h4ck@", "nobody:s3cret@"] {
        let client = client(&url(stranger));
        let refused = client.append_to_stream("order-1", &Default::default(), events(1)).await;
        assert!(refused.is_err(), "{stranger}");
        let asked = folder.run(&["eventlog", "scavenge", "--url", &url(stranger)]);
        assert_eq!(asked.code, 1, "{asked:?}");
        assert!(!asked.stderr.contains("h4ck") && !asked.stderr.contains("s3cret"), "{asked:?}");
    }
    folder.run(&["eventlog", "scavenge", "--url", &url("admin:s3cret@")]).ok();
    assert!(!server.stderr().contains("s3cret"), "{}", server.stderr());
}

#[tokio::test]
async fn a_wrong_command_line_says_what_to_do() {
    let folder = Folder::new();
    folder.write("users", "admin\n");
    for (args, expected) in [
        (&["eventlog", "serve", "--users", "nowhere"][..], "reading nowhere"),
        (&["eventlog", "serve", "--users", "users"], "line 1: expected `name:password`"),
        (&["eventlog", "serve", "--tls-key", "k.pem"], "--tls-certificate"),
        (&["eventlog", "serve", "--listen", "localhost:2113"], "such as 127.0.0.1:2113"),
        (&["eventlog", "check", "--data", "."], "there is no event log in ."),
        (&["eventlog", "backup", "copy", "--data", "."], "there is no event log in ."),
        (&["eventlog", "scavenge", "--url", "http://x"], "esdb://"),
    ] {
        let answer = folder.run(args);
        assert!(answer.code != 0 && answer.stderr.contains(expected), "{args:?}: {answer:?}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the file of users is there: {left:?}");
}

/// What `docs/eventlog.md` shows, as it stands: a client in Node, and one in Python.
#[tokio::test]
async fn the_clients_on_the_page_work() {
    let page = Page::read("docs/eventlog.md");
    let folder = Folder::new();
    let serving = Serving::new();
    let _server = serving.start(&folder).await;
    for (language, file, client, printed) in [
        ("js", "client.mjs", KurrentDbClient::Node, "order-ord_1 order-placed ord_1"),
        ("python", "client.py", KurrentDbClient::Python, "order-ord_2 order-placed 0"),
    ] {
        let fences = page.fences();
        let shown = fences.iter().find(|one| one.language() == language && one.has_tag("client"));
        let script = folder.write(file, &shown.expect("the page shows a client").text);
        let mut command = match client.script(&script, &serde_json::json!({})) {
            Ok(command) => command,
            Err(error) => {
                postroom_testkit::skip("eventlog: a client on the page", &format!("{error:#}"));
                continue;
            }
        };
        if let KurrentDbClient::Node = client {
            let modules = Path::new(command.get_args().nth(1).unwrap()).join("node_modules");
            std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
        }
        let mut run = Process::spawn(command.env("ESDB_CONNECTION_STRING", &serving.url));
        assert!(run.wait(LIMIT).await.success(), "{}", run.stderr());
        assert_eq!(run.stdout(), printed);
    }
}
