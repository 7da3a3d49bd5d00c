//! The receiver's server: a thread with a runtime, and with it every connection, which all end
//! together.

use super::connection::{Reset, ResettableListener};
use super::{Behaviour, Request, Script};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct Service {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(super) fn start(listener: TcpListener, script: Arc<Script>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for the receiver");
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, script) => {}
                    _ = stopped => {}
                }
            });
            // The runtime is dropped here, and with it the listener and every open connection.
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Waited for, so that the port is closed once this returns.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, script: Arc<Script>) {
    listener.set_nonblocking(true).expect("a listener can be made non-blocking");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener of this runtime");
    let router = Router::new()
        .fallback(receive)
        .layer(DefaultBodyLimit::disable())
        .with_state(script)
        .into_make_service_with_connect_info::<Reset>();
    axum::serve(ResettableListener(listener), router).await.expect("serving never ends by itself");
}

async fn receive(
    State(script): State<Arc<Script>>,
    ConnectInfo(reset): ConnectInfo<Reset>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Before the record: a test that has seen the request may release it at once.
    let mut releases = script.releases.subscribe();
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let behaviour = script.record(Request { method, path, headers, body, at: Instant::now() });
    match behaviour {
        Behaviour::Accept => StatusCode::OK.into_response(),
        Behaviour::Answer(status) => answer(status),
        Behaviour::AnswerWithHeader(status, name, value) => {
            let mut response = answer(status);
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a valid header name");
            let value = HeaderValue::from_str(&value).expect("a valid header value");
            response.headers_mut().insert(name, value);
            response
        }
        Behaviour::HoldResponse => {
            // The sender lives as long as the script does, which this handler holds.
            let _ = releases.changed().await;
            StatusCode::OK.into_response()
        }
        Behaviour::RespondSlowly(time) => {
            tokio::time::sleep(time).await;
            StatusCode::OK.into_response()
        }
        Behaviour::ResetAfterWork => {
            reset.reset();
            StatusCode::OK.into_response()
        }
    }
}

fn answer(status: u16) -> Response {
    StatusCode::from_u16(status).expect("a valid status").into_response()
}
