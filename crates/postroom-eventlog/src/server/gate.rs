//! What every request passes: who sends it, how it reached the server, and what becomes of it when
//! the server stops.

use super::intake::Intake;
use super::status;
use super::stopping::{Phase, Stopping};
use super::users::Users;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response, header, uri};
use tonic::service::Routes;

/// What a client may call without a password: it has to find the server first.
const OPEN: [&str; 2] = [
    "/event_store.client.server_features.ServerFeatures/GetSupportedMethods",
    "/event_store.client.gossip.Gossip/Read",
];

/// What collects what clients send.
const COLLECTING: [&str; 2] = [
    "/event_store.client.streams.Streams/Append",
    "/event_store.client.streams.Streams/BatchAppend",
];

/// The host and port by which a client names this server.
#[derive(Clone, Debug)]
pub(crate) struct Authority(pub(crate) uri::Authority);

/// The way to all services.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    routes: Routes,
    users: Option<Arc<Users>>,
    intake: Intake,
    stopping: Stopping,
}

type Future =
    Pin<Box<dyn std::future::Future<Output = Result<Response<Ending>, Infallible>> + Send>>;

impl Gate {
    pub(crate) fn new(routes: Routes, users: Option<Users>, stopping: Stopping) -> Self {
        Self { routes, users: users.map(Arc::new), intake: Intake::new(), stopping }
    }

    /// Has a call that collects what its client sends wait for room.
    fn metered(&self, request: Request<Body>) -> Request<Body> {
        if !COLLECTING.contains(&request.uri().path()) {
            return request;
        }
        let (parts, body) = request.into_parts();
        let (body, received) = self.intake.meter(body);
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(received);
        request
    }

    fn admits(&self, request: &Request<Body>) -> bool {
        let Some(users) = &self.users else { return true };
        OPEN.contains(&request.uri().path())
            || users.admit(request.headers().get(header::AUTHORIZATION))
    }
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Ending>;
    type Error = Infallible;
    type Future = Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.routes, cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Future {
        let stopping = self.stopping.clone();
        if !self.admits(&request) {
            let status = Status::unauthenticated("a name and password are needed, or are wrong");
            return Box::pin(async move { Ok(ending(status.into_http(), &stopping)) });
        }
        if let Some(authority) = request.uri().authority().cloned() {
            request.extensions_mut().insert(Authority(authority));
        }
        let answer = self.routes.call(self.metered(request));
        Box::pin(async move {
            let response = tokio::select! {
                answer = answer => answer?,
                () = stopping.reached(Phase::EndRequests) => status::stopping().into_http(),
            };
            Ok(ending(response, &stopping))
        })
    }
}

fn ending(response: Response<Body>, stopping: &Stopping) -> Response<Ending> {
    response.map(|body| Ending {
        body,
        end: Box::pin(stopping.reached(Phase::EndStreams)),
        has_ended: false,
    })
}

/// An answer that ends when the server stops, with a status by which clients connect again.
pub(crate) struct Ending {
    body: Body,
    end: Pin<Box<dyn std::future::Future<Output = ()> + Send>>,
    has_ended: bool,
}

impl http_body::Body for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        // What is at hand is sent: it ends where it would wait.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if self.end.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        let result = status::stopping().add_header(&mut trailers);
        Poll::Ready(Some(result.map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
