//! A partner's endpoint as they are: mostly fine, sometimes slow, sometimes failing, and now and
//! then gone altogether.

use super::ledger::Ledger;
use crate::failure::Failure;
use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use rand::RngExt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Of a thousand requests, so many are turned away before any work is done.
const BUSY: u32 = 50;
/// So many are worked on, but the answer says they were not: the sender must send them again.
const ANSWER_LOST: u32 = 5;
/// So many take their time.
const SLOW: u32 = 10;
const SLOW_TIME: Duration = Duration::from_millis(250);
/// How long the receiver stays away.
const AWAY: Duration = Duration::from_millis(1_500);

/// The receiver, listening on loopback.
pub(super) struct Receiver {
    address: SocketAddr,
    up: watch::Receiver<bool>,
}

impl Receiver {
    pub(super) async fn start(ledger: Arc<Ledger>) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("the demo's receiver cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let (state, up) = watch::channel(true);
        tokio::spawn(come_and_go(listener, address, ledger, state));
        Ok(Self { address, up })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    /// Whether it is there.
    pub(super) fn state(&self) -> watch::Receiver<bool> {
        self.up.clone()
    }
}

/// Serves, and goes away after a third and two thirds of what is planned.
async fn come_and_go(
    listener: TcpListener,
    address: SocketAddr,
    ledger: Arc<Ledger>,
    state: watch::Sender<bool>,
) {
    let mut listener = listener;
    for part in 1..=3 {
        let routes =
            Router::new().route("/orders", post(take_order)).with_state(Arc::clone(&ledger));
        let leave = leave_after(Arc::clone(&ledger), part);
        if axum::serve(listener, routes).with_graceful_shutdown(leave).await.is_err() {
            return;
        }
        state.send_replace(false);
        tokio::time::sleep(AWAY).await;
        listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                // Someone else has the port for a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        state.send_replace(true);
    }
}

async fn leave_after(ledger: Arc<Ledger>, part: u64) {
    if part == 3 {
        return std::future::pending().await;
    }
    while ledger.delivered.load(Ordering::Relaxed) < ledger.planned * part / 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn take_order(State(ledger): State<Arc<Ledger>>, headers: HeaderMap) -> StatusCode {
    let Some(event_id) = headers.get("idempotency-key").and_then(|id| id.to_str().ok()) else {
        return StatusCode::BAD_REQUEST;
    };
    let mood = rand::rng().random_range(0..1_000);
    if mood < BUSY {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    ledger.receive(event_id);
    if mood < BUSY + ANSWER_LOST {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    if mood < BUSY + ANSWER_LOST + SLOW {
        tokio::time::sleep(SLOW_TIME).await;
    }
    StatusCode::OK
}
