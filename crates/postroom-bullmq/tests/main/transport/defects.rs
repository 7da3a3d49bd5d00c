//! A part of the transport that panics is noticed: nothing hangs in silence.

use super::faulty::{Call, faulty, refused};
use super::outbox::{Outbox, external, own, soon};
use postroom_bullmq::Part;
use postroom_relay::Metrics;
use postroom_sinks::MemorySink;
use postroom_testkit::Redis;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs one message until the transport gives up, and what it says then.
async fn gives_up(mut outbox: Outbox, panics: impl Fn(Call<'_>) -> bool + Send + Sync + 'static) {
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| {
        assert!(!panics(call), "as the test asks");
        Ok(())
    });
    assert_gives_up(&outbox).await;
}

async fn assert_gives_up(outbox: &Outbox) {
    outbox.enqueue(&outbox.message("order.created", 3)).await;
    let transport = outbox.transport(outbox.settings.clone(), &Arc::new(Metrics::new()));
    let defect = soon(transport.run(Part::Relay, std::future::pending())).await.unwrap_err();
    let told = defect.to_string();
    assert!(told.contains("as the test asks"), "{told}");
}

#[tokio::test]
async fn a_panic_of_the_dispatcher_is_noticed() {
    let server = Redis::shared().await;
    let outbox = own(server.address(), Arc::new(MemorySink::new()));
    gives_up(outbox, |call| matches!(call, Call::Take)).await;
}

#[tokio::test]
async fn a_panic_while_claims_are_kept_is_noticed() {
    let server = Redis::shared().await;
    gives_up(external(server.address()), |call| matches!(call, Call::Beat([_, ..]))).await;
}

/// Whoever waits for its answer would wait for ever.
#[tokio::test]
async fn a_panic_of_the_reader_is_noticed() {
    let server = Redis::shared().await;
    let outbox = own(server.address(), Arc::new(MemorySink::new()));
    gives_up(outbox, |call| matches!(call, Call::Dispatched(_))).await;
}

#[tokio::test]
async fn a_panic_of_the_settler_is_noticed() {
    let server = Redis::shared().await;
    let outbox = own(server.address(), Arc::new(MemorySink::new()));
    gives_up(outbox, |call| matches!(call, Call::Settle(_))).await;
}

/// What becomes no job is recorded beside the dispatcher.
#[tokio::test]
async fn a_panic_beside_the_dispatcher_is_noticed() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.payload_limit = 1;
    gives_up(outbox, |call| matches!(call, Call::Settle(_))).await;
}

/// What is refused is recorded aside, so that others need not wait.
#[tokio::test]
async fn a_panic_aside_of_the_settler_is_noticed() {
    let server = Redis::shared().await;
    let mut outbox = own(server.address(), Arc::new(MemorySink::new()));
    let was_refused = AtomicBool::new(false);
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| match call {
        Call::Settle(_) => {
            assert!(!was_refused.swap(true, Ordering::SeqCst), "as the test asks");
            Err(refused())
        }
        _ => Ok(()),
    });
    assert_gives_up(&outbox).await;
}
