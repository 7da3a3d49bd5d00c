//! Once a minute, one line says what the relay did.

use crate::outbox::{Outbox, message, patient_lane};
use postroom_core::Outcome;
use postroom_relay::Settings;
use postroom_sinks::MemorySink;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn summaries(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains("in the last minute"));
        lines.map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn once_a_minute_a_line_says_what_was_done_and_nothing_of_content() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let outbox = Outbox::memory().await;
    let sink = MemorySink::new();
    sink.fail_next(3, Outcome::Delivered);
    sink.fail_next(2, Outcome::retry("503"));
    sink.fail_next(1, Outcome::reject("400"));
    for _ in 0..6 {
        let secret = message("memory:a").json(&serde_json::json!({ "card": "4111" }));
        outbox.store.enqueue(&secret).await.unwrap();
    }
    let relay = outbox.relay(Settings::default(), vec![patient_lane("memory:a", sink)]);
    let stop = tokio::time::sleep(Duration::from_secs(150));
    relay.run(stop).await.unwrap();
    let summaries = log.summaries();
    assert_eq!(summaries.len(), 2, "{summaries:?}");
    for part in ["taken=6", "sent=3", "failed=2", "dead=1", "in_flight=0", "lag=", "INFO"] {
        assert!(summaries[0].contains(part), "{part}: {}", summaries[0]);
    }
    assert!(summaries[1].contains("taken=0 sent=0 failed=0 dead=0"), "{}", summaries[1]);
    assert!(summaries.iter().all(|line| !line.contains("4111")), "{summaries:?}");
}
