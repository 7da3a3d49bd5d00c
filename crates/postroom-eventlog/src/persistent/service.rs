//! The gRPC service.

use super::consumption;
use super::error::Error;
use super::group::Command;
use super::group_id::GroupId;
use super::registry::Registry;
use super::source::ALL;
use super::{requests, status};
use crate::eventlog::EventLog;
use crate::proto::persistent_subscriptions::list_req::options::ListOption;
use crate::proto::persistent_subscriptions::persistent_subscriptions_server::PersistentSubscriptions;
use crate::proto::persistent_subscriptions::replay_parked_req::options::StopAtOption;
use crate::proto::persistent_subscriptions::{
    CreateReq, CreateResp, DeleteReq, DeleteResp, GetInfoReq, GetInfoResp, ListReq, ListResp,
    ReadReq, ReplayParkedReq, ReplayParkedResp, SubscriptionInfo, UpdateResp, delete_req,
    get_info_req, list_req, replay_parked_req,
};
use crate::proto::shared::Empty;
use crate::server::READS_MAX;
use crate::server::reads::Reads;
use tonic::{Request, Response, Status, Streaming};

/// The persistent subscriptions of a log, served over gRPC. Clones are the same service.
///
/// Groups live in the log: whoever serves the same log again finds them where they were. A group
/// begins to work when a client first asks for it.
#[derive(Clone, Debug)]
pub struct Service {
    registry: Registry,
    reads: Reads,
}

impl Service {
    /// The persistent subscriptions of this log. A log has one service at a time.
    #[must_use]
    pub fn new(log: EventLog) -> Self {
        Self::with_reads(log, Reads::new(READS_MAX))
    }

    /// The same, whose consumers count as reads like others.
    pub(crate) fn with_reads(log: EventLog, reads: Reads) -> Self {
        Self { registry: Registry::new(log), reads }
    }

    /// Writes the checkpoints of all groups, and ends all subscriptions with UNAVAILABLE. Requests
    /// that come later are refused in the same way. To be called before the log is closed.
    pub async fn close(&self) {
        self.registry.close().await;
    }

    /// Ends all subscriptions as dropped; groups begin again where they were.
    pub(crate) async fn restart(&self) -> Result<(), Status> {
        self.registry.restart().await.map_err(status::of_error)
    }

    async fn information(&self, id: &GroupId) -> Result<SubscriptionInfo, Error> {
        let information = self.registry.ask(id, |reply| Command::Info { reply }).await?;
        information.map_err(|error| Error::Unreadable(id.clone(), error))
    }
}

#[tonic::async_trait]
impl PersistentSubscriptions for Service {
    type ReadStream = consumption::Messages;

    async fn create(&self, request: Request<CreateReq>) -> Result<Response<CreateResp>, Status> {
        let wanted = requests::wanted(request.into_inner()).map_err(status::of_error)?;
        self.registry.create(wanted).await.map_err(status::of_error)?;
        Ok(Response::new(CreateResp {}))
    }

    async fn update(&self, request: Request<CreateReq>) -> Result<Response<UpdateResp>, Status> {
        let wanted = requests::wanted(request.into_inner()).map_err(status::of_error)?;
        self.registry.update(wanted).await.map_err(status::of_error)?;
        Ok(Response::new(UpdateResp {}))
    }

    async fn delete(&self, request: Request<DeleteReq>) -> Result<Response<DeleteResp>, Status> {
        use delete_req::options::StreamOption;
        let options = request.into_inner().options.ok_or_else(no_options)?;
        let stream = match options.stream_option {
            Some(StreamOption::StreamIdentifier(stream)) => Some(stream),
            Some(StreamOption::All(_)) => None,
            None => return Err(no_options()),
        };
        let id = requests::group_id(stream, options.group_name).map_err(status::of_error)?;
        self.registry.delete(id).await.map_err(status::of_error)?;
        Ok(Response::new(DeleteResp {}))
    }

    async fn read(
        &self,
        request: Request<Streaming<ReadReq>>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let messages = consumption::begin(&self.registry, self.reads.open()?, request).await?;
        Ok(Response::new(messages))
    }

    async fn get_info(
        &self,
        request: Request<GetInfoReq>,
    ) -> Result<Response<GetInfoResp>, Status> {
        use get_info_req::options::StreamOption;
        let options = request.into_inner().options.ok_or_else(no_options)?;
        let stream = match options.stream_option {
            Some(StreamOption::StreamIdentifier(stream)) => Some(stream),
            Some(StreamOption::All(_)) => None,
            None => return Err(no_options()),
        };
        let id = requests::group_id(stream, options.group_name).map_err(status::of_error)?;
        let information = self.information(&id).await.map_err(status::of_error)?;
        Ok(Response::new(GetInfoResp { subscription_info: Some(information) }))
    }

    async fn replay_parked(
        &self,
        request: Request<ReplayParkedReq>,
    ) -> Result<Response<ReplayParkedResp>, Status> {
        use replay_parked_req::options::StreamOption;
        let options = request.into_inner().options.ok_or_else(no_options)?;
        let stream = match options.stream_option {
            Some(StreamOption::StreamIdentifier(stream)) => Some(stream),
            Some(StreamOption::All(_)) => None,
            None => return Err(no_options()),
        };
        let count = match options.stop_at_option {
            Some(StopAtOption::StopAt(count)) => Some(u64::try_from(count).map_err(|_| {
                Status::invalid_argument("stop_at is how many messages to replay, from 0 on")
            })?),
            Some(StopAtOption::NoLimit(_)) | None => None,
        };
        let id = requests::group_id(stream, options.group_name).map_err(status::of_error)?;
        let replay = |reply| Command::Replay { count, reply };
        let replayed = self.registry.ask(&id, replay).await.map_err(status::of_error)?;
        replayed.map_err(|error| status::of_error(Error::Unreadable(id, error)))?;
        Ok(Response::new(ReplayParkedResp {}))
    }

    async fn list(&self, request: Request<ListReq>) -> Result<Response<ListResp>, Status> {
        use list_req::stream_option::StreamOption;
        let options = request.into_inner().options.ok_or_else(no_options)?;
        let stream = match options.list_option {
            Some(ListOption::ListAllSubscriptions(_)) => None,
            Some(ListOption::ListForStream(stream)) => match stream.stream_option {
                Some(StreamOption::Stream(stream)) => {
                    Some(requests::stream(Some(stream)).map_err(status::of_error)?)
                }
                Some(StreamOption::All(_)) => Some(ALL.to_owned()),
                None => return Err(no_options()),
            },
            None => return Err(no_options()),
        };
        let groups = self.registry.list(stream.as_deref()).await.map_err(status::of_error)?;
        if let (Some(stream), true) = (&stream, groups.is_empty()) {
            return Err(status::no_groups(stream));
        }
        let mut subscriptions = Vec::with_capacity(groups.len());
        for id in groups {
            match self.information(&id).await {
                Ok(information) => subscriptions.push(information),
                // Deleted since.
                Err(Error::DoesNotExist(_)) => {}
                Err(error) => return Err(status::of_error(error)),
            }
        }
        Ok(Response::new(ListResp { subscriptions }))
    }

    async fn restart_subsystem(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.restart().await?;
        Ok(Response::new(Empty {}))
    }
}

fn no_options() -> Status {
    Status::invalid_argument("the request does not say which group or stream it means")
}
