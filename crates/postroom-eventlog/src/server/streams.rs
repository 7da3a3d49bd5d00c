//! The service of streams.

use super::append;
use super::batch::{self, Answers};
use super::read::{self, Responses};
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
}

impl StreamsService {
    pub(crate) fn new(log: EventLog) -> Self {
        Self { log }
    }
}

#[tonic::async_trait]
impl Streams for StreamsService {
    type ReadStream = Responses;
    type BatchAppendStream = Answers;

    async fn read(&self, request: Request<ReadReq>) -> Result<Response<Responses>, Status> {
        let request = ReadRequest::parse(request.into_inner().options)?;
        let responses = match request.mode {
            Mode::Once { direction, count } => {
                read::read(self.log.clone(), request, direction, count).await?
            }
            Mode::Subscription => subscribe::subscribe(&self.log, request),
        };
        Ok(Response::new(responses))
    }

    async fn append(
        &self,
        request: Request<Streaming<AppendReq>>,
    ) -> Result<Response<AppendResp>, Status> {
        append::append(&self.log, request.into_inner()).await.map(Response::new)
    }

    async fn batch_append(
        &self,
        request: Request<Streaming<BatchAppendReq>>,
    ) -> Result<Response<Answers>, Status> {
        Ok(Response::new(batch::batch_append(self.log.clone(), request.into_inner())))
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

fn deletion(deleted: Appended) -> DeleteResp {
    let position = deleted.position.map_or(PositionOption::NoPosition(Empty {}), |position| {
        PositionOption::Position(wire::position(position))
    });
    DeleteResp { position_option: Some(position) }
}
