//! Health, readiness and metrics of a relay or a worker over HTTP.
//!
//! `/healthz` answers while the process lives, `/readyz` says whether it can do its work
//! and why not, `/metrics` is for Prometheus.

mod exposition;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, extract::State};
use exposition::Form;
use postroom_relay::Observed;
use serde_json::json;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves on `listener` until `stop` resolves and the requests under way are answered.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    shown: Arc<dyn Observed>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, routes(shown)).with_graceful_shutdown(stop).await
}

fn routes(shown: Arc<dyn Observed>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .with_state(shown)
}

async fn health() -> Response {
    as_json(StatusCode::OK, &json!({ "status": "ok" }))
}

async fn readiness(State(shown): State<Arc<dyn Observed>>) -> Response {
    let health = shown.health();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    as_json(status, &health)
}

async fn metrics(State(shown): State<Arc<dyn Observed>>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|one| one.to_str().ok());
    let form = Form::wanted(&accepted.collect::<Vec<_>>().join(","));
    let content_type = [(header::CONTENT_TYPE, form.content_type()), (header::VARY, "Accept")];
    (content_type, form.of(shown.metrics())).into_response()
}

fn as_json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
