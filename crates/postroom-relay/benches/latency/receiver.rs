//! A webhook endpoint that answers at once and notes when it was called.

use axum::Router;
use axum::routing::post;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::sync::mpsc;

pub(crate) async fn start() -> anyhow::Result<(SocketAddr, mpsc::UnboundedReceiver<Instant>)> {
    let (sender, arrivals) = mpsc::unbounded_channel();
    let app = Router::new().route(
        "/hook",
        post(move || async move {
            let _ = sender.send(Instant::now());
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((address, arrivals))
}
