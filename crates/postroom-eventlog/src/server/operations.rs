//! Looking after the server.

use super::status;
use crate::EventLog;
use crate::persistent;
use crate::proto::operations::operations_server::Operations;
use crate::proto::operations::{
    ScavengeResp, SetNodePriorityReq, StartScavengeReq, StopScavengeReq, scavenge_resp,
};
use crate::proto::shared::Empty;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// Starts and stops scavenges. What is about clusters is not here.
#[derive(Debug)]
pub(crate) struct OperationsService {
    log: EventLog,
    groups: persistent::Service,
    /// The scavenge that a client started and that is under way.
    current: Arc<Mutex<Option<Uuid>>>,
}

impl OperationsService {
    pub(crate) fn new(log: EventLog, groups: persistent::Service) -> Self {
        Self { log, groups, current: Arc::default() }
    }
}

/// Ends the scavenge's turn, also where its task panics.
struct Turn(Arc<Mutex<Option<Uuid>>>);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[tonic::async_trait]
impl Operations for OperationsService {
    async fn start_scavenge(
        &self,
        _: Request<StartScavengeReq>,
    ) -> Result<Response<ScavengeResp>, Status> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = *current {
            return Ok(answer(id, scavenge_resp::Result::InProgress));
        }
        if self.log.is_scavenging() {
            // It was started by the program that the log is embedded in, and has no id.
            return Ok(answer(Uuid::nil(), scavenge_resp::Result::InProgress));
        }
        let id = Uuid::new_v4();
        *current = Some(id);
        let turn = Turn(self.current.clone());
        let log = self.log.clone();
        tokio::spawn(async move {
            let _turn = turn;
            match log.scavenge().await {
                Ok(scavenged) => {
                    let (events, bytes) = (scavenged.events, scavenged.bytes);
                    tracing::info!(%id, events, bytes, "scavenge finished");
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(%id, error, "scavenge failed; nothing is lost, start it again");
                }
            }
        });
        Ok(answer(id, scavenge_resp::Result::Started))
    }

    async fn stop_scavenge(
        &self,
        request: Request<StopScavengeReq>,
    ) -> Result<Response<ScavengeResp>, Status> {
        let asked = request.into_inner().options.map(|options| options.scavenge_id);
        let asked = asked.unwrap_or_default();
        let current = *self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match current {
            Some(id) if Uuid::try_parse(&asked) == Ok(id) => {
                self.log.stop_scavenge();
                Ok(answer(id, scavenge_resp::Result::Stopped))
            }
            Some(_) | None => Err(status::scavenge_not_found(&asked)),
        }
    }

    async fn shutdown(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("stop the process that serves the log instead"))
    }

    async fn merge_indexes(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("this log has one index, so there is nothing to merge"))
    }

    async fn resign_node(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("this is a single node, so no other one could lead"))
    }

    async fn set_node_priority(
        &self,
        _: Request<SetNodePriorityReq>,
    ) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("this is a single node, so there are no elections"))
    }

    async fn restart_persistent_subscriptions(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Empty>, Status> {
        self.groups.restart().await?;
        Ok(Response::new(Empty {}))
    }
}

fn answer(id: Uuid, result: scavenge_resp::Result) -> Response<ScavengeResp> {
    Response::new(ScavengeResp { scavenge_id: id.to_string(), scavenge_result: result as i32 })
}
