//! The service of streams.

use super::append;
use super::batch::{self, Answers};
use super::intake::Received;
use super::read::{self, Responses};
use super::reads::{Counted, Reads};
use super::request::{Mode, ReadRequest};
use super::{status, subscribe, wire};
use crate::proto::shared::Empty;
use crate::proto::streams::delete_resp::PositionOption;
use crate::proto::streams::streams_server::Streams;
use crate::proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, DeleteReq, DeleteResp, ReadReq,
};
use crate::{Appended, EventLog};
use tonic::{Request, Response, Status, Streaming};

/// Serves a log's streams.
#[derive(Debug)]
pub(crate) struct StreamsService {
    log: EventLog,
    reads: Reads,
}

impl StreamsService {
    pub(crate) fn new(log: EventLog, reads: Reads) -> Self {
        Self { log, reads }
    }
}

#[tonic::async_trait]
impl Streams for StreamsService {
    type ReadStream = Responses;
    type BatchAppendStream = Answers;

    async fn read(&self, request: Request<ReadReq>) -> Result<Response<Responses>, Status> {
        let open = self.reads.open()?;
        let request = ReadRequest::parse(request.into_inner().options)?;
        let responses = match request.mode {
            Mode::Once { direction, count } => {
                read::read(self.log.clone(), request, direction, count).await?
            }
            Mode::Subscription => subscribe::subscribe(&self.log, request),
        };
        Ok(Response::new(Box::pin(Counted::new(responses, open))))
    }

    async fn append(
        &self,
        request: Request<Streaming<AppendReq>>,
    ) -> Result<Response<AppendResp>, Status> {
        let received = received(&request);
        append::append(&self.log, request.into_inner(), received).await.map(Response::new)
    }

    async fn batch_append(
        &self,
        request: Request<Streaming<BatchAppendReq>>,
    ) -> Result<Response<Answers>, Status> {
        let received = received(&request);
        let log = self.log.clone();
        Ok(Response::new(batch::batch_append(log, request.into_inner(), received)))
    }

    async fn delete(&self, request: Request<DeleteReq>) -> Result<Response<DeleteResp>, Status> {
        let (stream, expected) = append::target(request.into_inner().options)?;
        let deleted = self
            .log
            .delete(&stream, expected)
            .await
            .map_err(|error| status::of_append("Delete", &stream, &error))?;
        Ok(Response::new(deletion(deleted)))
    }

    async fn tombstone(&self, request: Request<DeleteReq>) -> Result<Response<DeleteResp>, Status> {
        let (stream, expected) = append::target(request.into_inner().options)?;
        let deleted = self
            .log
            .tombstone(&stream, expected)
            .await
            .map_err(|error| status::of_append("Tombstone", &stream, &error))?;
        Ok(Response::new(deletion(deleted)))
    }
}

/// What the gate has read of the request.
fn received<T>(request: &Request<T>) -> Received {
    request.extensions().get::<Received>().cloned().unwrap_or_default()
}

fn deletion(deleted: Appended) -> DeleteResp {
    let position = deleted.position.map_or(PositionOption::NoPosition(Empty {}), |position| {
        PositionOption::Position(wire::position(position))
    });
    DeleteResp { position_option: Some(position) }
}
