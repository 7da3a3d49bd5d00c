//! What nobody may read in a log, a metric or an error.

use crate::command::Folder;
use crate::faults_outbox::{Outbox, SOON, page, webhook};
use postroom::{NewMessage, enqueue};
use postroom_testkit::{Behaviour, Postgres, Process, Receiver, eventually};
use std::time::Duration;

const SECRET: &str = "4111-1111-1111-1111";

/// A bare level is for our own lines: drivers are named.
const EVERYTHING: &str = "trace,deadpool=trace,h2=trace,hyper=trace,hyper_util=trace,mio=trace,\
    reqwest=trace,rustls=trace,sqlx=trace,tokio=trace,tokio_postgres=trace,tower=trace";

#[tokio::test]
async fn no_payload_is_in_the_log_or_in_an_error_whatever_the_receiver_does() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([
        Behaviour::Answer(500),
        Behaviour::ResetAfterWork,
        Behaviour::RespondSlowly(Duration::from_secs(3_600)),
        Behaviour::Answer(400),
    ]);
    let mut client = outbox.client().await;
    let mut tx = client.transaction().await.unwrap();
    let message = NewMessage::new("webhook:a", "card.charged.v1")
        .json(&serde_json::json!({ "card": SECRET }))
        .headers(&serde_json::json!({ "x-card": SECRET }));
    let id = enqueue(&mut tx, message).await.unwrap().into_id();
    tx.commit().await.unwrap();

    let lane = webhook(&receiver, "").replace("timeout = \"5m\"", "timeout = \"300ms\"");
    let relay = outbox.relay("", &lane);
    let dead = outbox.wait_for(&id, "DEAD").await;
    assert_eq!(receiver.count(), 4);
    let error = dead.last_error.unwrap();
    assert!(error.contains("400 Bad Request") && !error.contains(SECRET), "{error}");
    // The log has the errors of all four attempts.
    relay.wait_for_line("phase=\"DEAD\"", SOON).await;
    let log = relay.stderr();
    assert_eq!(log.matches("phase=\"FAILED\"").count(), 3, "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[tokio::test]
async fn fault_38_no_password_of_mariadb_is_in_an_error() {
    let outbox = Outbox::mariadb().await;
    let url = outbox.url().replace("root@", &format!("app:{SECRET}@"));
    let folder = outbox.folder();
    let config = folder.write("wrong.toml", &format!("[database]\nurl = \"{url}\"\n"));
    let config = config.display().to_string();
    for command in ["run", "check", "stats", "migrate"] {
        let answer = folder.run(&[command, "--config", &config]);
        assert_ne!(answer.code, 0, "{command}: {answer:?}");
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert!(said.contains("Access denied"), "{command}: {said}");
        assert!(!said.contains(SECRET), "{command}: {said}");
    }
}

const PASSWORD: &str = "correct-horse-battery";

/// A server that asks one role for its password.
async fn server_with_passwords(folder: &Folder) -> Postgres {
    let rules = folder.write(
        "pg_hba.conf",
        "host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n",
    );
    // The server may run as another user, who must reach the file.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let server = Postgres::private(&[("hba_file", rules.to_str().unwrap())]).await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let role = format!("CREATE ROLE guarded SUPERUSER LOGIN PASSWORD '{PASSWORD}'");
    client.batch_execute(&role).await.unwrap();
    server
}

#[tokio::test]
async fn fault_38_no_password_is_in_the_log_in_an_error_or_in_a_process_title() {
    let folder = Folder::new();
    let server = server_with_passwords(&folder).await;
    let url = server.url().replacen("postgres@", "guarded:${PASSWORD}@", 1);
    folder.write(
        "postroom.toml",
        &format!(
            "[database]\nurl = \"{url}\"\n[server]\nlisten = \"127.0.0.1:0\"\n\
             [integrations.noop]\n"
        ),
    );
    let run = |args: &[&str], password: &str| {
        let mut command = folder.command(args);
        command.env("PASSWORD", password).env("RUST_LOG", EVERYTHING);
        command
    };
    assert!(run(&["migrate"], PASSWORD).output().unwrap().status.success());
    let mut relay = Process::spawn(&mut run(&["run"], PASSWORD));
    relay.wait_for_line("serving /healthz", SOON).await;
    let title = std::fs::read(format!("/proc/{}/cmdline", relay.id())).unwrap();
    assert!(!String::from_utf8_lossy(&title).contains(PASSWORD));
    eventually("the relay to work", SOON, async || {
        relay.stderr().contains("the relay runs").then_some(())
    })
    .await;
    relay.kill9();
    assert!(!relay.stderr().contains(PASSWORD), "{}", relay.stderr());

    let wrong = "wrong-password-entirely";
    for args in [&["check"][..], &["stats"], &["migrate"], &["run", "--once"]] {
        let output = run(args, wrong).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let said = said.concat();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("password authentication failed"), "{said}");
        assert!(!said.contains(wrong), "{said}");
    }
    // On the command line everybody can see it, and that is said.
    let visible = url.replace("${PASSWORD}", PASSWORD);
    let answer = folder.run(&["stats", "--database", &visible]);
    assert!(answer.stderr.contains("in the list of processes"), "{answer:?}");
    assert!(!answer.stderr.contains(PASSWORD), "{answer:?}");
}

/// Every secret that a webhook can have, each under a name of its own.
const WEBHOOK_SECRETS: [(&str, &str); 6] = [
    ("PATH_SECRET", "path-5ecret-one"),
    ("HEADER_SECRET", "header-5ecret-two"),
    ("PASSWORD_SECRET", "password-5ecret-three"),
    ("SHARED_SECRET", "whsec_c2hhcmVkLTVlY3JldC1mb3VyIQ=="),
    ("PRIVATE_SECRET", "whsk_cHJpdmF0ZS01ZWNyZXQtZml2ZS4uLi4uLi4uLi4uLi4="),
    ("PAYLOAD_SECRET", "payload-5ecret-six"),
];

#[tokio::test]
async fn fault_38_no_secret_of_a_webhook_is_in_the_log_an_error_a_metric_or_a_report() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([
        Behaviour::Answer(500),
        Behaviour::ResetAfterWork,
        Behaviour::RespondSlowly(Duration::from_secs(3_600)),
        Behaviour::Answer(401),
    ]);
    receiver.always(Behaviour::Answer(400));
    let integration = format!(
        "[integrations.\"webhook:a\"]\nurl = \"{}${{PATH_SECRET}}?key=${{PATH_SECRET}}\"\n\
         timeout = \"300ms\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
         headers = {{ x-key = \"${{HEADER_SECRET}}\" }}\n\
         auth.basic = {{ user = \"u\", password = \"${{PASSWORD_SECRET}}\" }}\n\
         secrets = [\"${{SHARED_SECRET}}\", \"${{PRIVATE_SECRET}}\"]\n\
         retry = {{ base = \"1ms\", cap = \"1ms\", jitter = \"0s\" }}\n",
        receiver.url()
    );
    let config = outbox.configure("", &integration);
    let message = NewMessage::new("webhook:a", "t")
        .json(&serde_json::json!({ "card": WEBHOOK_SECRETS[5].1 }))
        .headers(&serde_json::json!({ "x-card": WEBHOOK_SECRETS[5].1 }));
    let mut client = outbox.client().await;
    let mut tx = client.transaction().await.unwrap();
    let id = enqueue(&mut tx, message).await.unwrap().into_id();
    tx.commit().await.unwrap();

    let run = |args: &[&str]| {
        let mut command = outbox.folder.command(&[args, &["--config", &config]].concat());
        command.envs(WEBHOOK_SECRETS).env("RUST_LOG", EVERYTHING);
        command
    };
    let relay = Process::spawn(&mut run(&["run"]));
    let dead = outbox.wait_for(&id, "DEAD").await;
    relay.wait_for_line("phase=\"DEAD\"", SOON).await;
    assert_eq!(receiver.count(), 5, "each behaviour was met");
    let pages = [page(&relay, "/metrics").await.unwrap(), page(&relay, "/readyz").await.unwrap()];
    let check = run(&["check", "--json"]).output().unwrap();
    receiver.refuse();
    let down = run(&["check"]).output().unwrap();
    let said: Vec<String> = [relay.stderr(), dead.last_error.unwrap()]
        .into_iter()
        .chain(pages)
        .chain(
            [check.stdout, check.stderr, down.stdout, down.stderr]
                .map(|text| String::from_utf8(text).unwrap()),
        )
        .collect();
    assert!(said[0].contains("401 Unauthorized"), "{}", said[0]);
    assert_eq!(
        receiver.requests()[0].path.matches("5ecret").count(),
        2,
        "it was sent all the same"
    );
    for (name, secret) in WEBHOOK_SECRETS {
        let tail = secret.rsplit('_').next().unwrap();
        for text in &said {
            assert!(!text.contains(tail), "{name} is in: {text}");
        }
    }
    // What the secrets stand for once they are encoded: the header that carries the password.
    let basic = receiver.requests()[0].header("authorization").unwrap().replace("Basic ", "");
    assert!(said.iter().all(|text| !text.contains(&basic)));
}
