//! A client in few words.

use super::server::PATIENCE;
use futures_util::stream;
use postroom_eventlog::proto::persistent_subscriptions::create_req::options::StreamOption as CreateOf;
use postroom_eventlog::proto::persistent_subscriptions::persistent_subscriptions_client::PersistentSubscriptionsClient;
use postroom_eventlog::proto::persistent_subscriptions::read_req::nack::Action;
use postroom_eventlog::proto::persistent_subscriptions::read_req::options::StreamOption as ReadOf;
use postroom_eventlog::proto::persistent_subscriptions::read_req::{self, Ack, Content, Nack};
use postroom_eventlog::proto::persistent_subscriptions::read_resp::Content as Answer;
use postroom_eventlog::proto::persistent_subscriptions::read_resp::read_event::Count;
use postroom_eventlog::proto::persistent_subscriptions::settings::{
    CheckpointAfter, MessageTimeout,
};
use postroom_eventlog::proto::persistent_subscriptions::{
    AllOptions, CreateReq, DeleteReq, GetInfoReq, NamedStrategy, ReadReq, ReadResp,
    ReplayParkedReq, Settings, SubscriptionInfo, create_req, delete_req, get_info_req,
    replay_parked_req,
};
use postroom_eventlog::proto::shared::stream_options::RevisionOption;
use postroom_eventlog::proto::shared::uuid::Value;
use postroom_eventlog::proto::shared::{
    Empty, RecordedEvent, StreamIdentifier, StreamOptions, Uuid as WireUuid,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

#[derive(Clone)]
pub(super) struct Client {
    pub(super) client: PersistentSubscriptionsClient<Channel>,
}

/// Settings of clients, with checkpoints at once.
pub(super) fn settings() -> Settings {
    Settings {
        max_retry_count: 10,
        min_checkpoint_count: 1,
        max_checkpoint_count: 1,
        live_buffer_size: 500,
        read_batch_size: 20,
        history_buffer_size: 500,
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(30_000)),
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(10)),
        named_consumer_strategy: NamedStrategy::RoundRobin as i32,
        ..Settings::default()
    }
}

pub(super) fn of_stream(stream: &str) -> StreamIdentifier {
    StreamIdentifier { stream_name: stream.as_bytes().to_vec().into() }
}

pub(super) fn create(stream: &str, start: RevisionOption, settings: Settings) -> CreateReq {
    let of =
        StreamOptions { stream_identifier: Some(of_stream(stream)), revision_option: Some(start) };
    let options = create_req::Options {
        stream_identifier: None,
        group_name: "g".to_owned(),
        settings: Some(settings),
        stream_option: Some(CreateOf::Stream(of)),
    };
    CreateReq { options: Some(options) }
}

pub(super) fn create_of_all(all: AllOptions, settings: Settings) -> CreateReq {
    let options = create_req::Options {
        stream_identifier: None,
        group_name: "g".to_owned(),
        settings: Some(settings),
        stream_option: Some(CreateOf::All(all)),
    };
    CreateReq { options: Some(options) }
}

pub(super) fn from_start() -> RevisionOption {
    RevisionOption::Start(Empty {})
}

impl Client {
    pub(super) async fn create(
        &mut self,
        stream: &str,
        start: RevisionOption,
        settings: Settings,
    ) -> Result<(), Status> {
        self.client.create(create(stream, start, settings)).await.map(|_| ())
    }

    pub(super) async fn delete(&mut self, stream: &str) -> Result<(), Status> {
        let of = delete_req::options::StreamOption::StreamIdentifier(of_stream(stream));
        let options = delete_req::Options { stream_option: Some(of), group_name: "g".to_owned() };
        self.client.delete(DeleteReq { options: Some(options) }).await.map(|_| ())
    }

    pub(super) async fn info(&mut self, stream: &str) -> Result<SubscriptionInfo, Status> {
        use get_info_req::options::StreamOption;
        let of = match stream {
            "$all" => StreamOption::All(Empty {}),
            stream => StreamOption::StreamIdentifier(of_stream(stream)),
        };
        let options = get_info_req::Options { stream_option: Some(of), group_name: "g".to_owned() };
        let answer = self.client.get_info(GetInfoReq { options: Some(options) }).await?;
        Ok(answer.into_inner().subscription_info.unwrap())
    }

    /// Asks until the information is as it should be.
    pub(super) async fn info_when(
        &mut self,
        stream: &str,
        is_there: impl Fn(&SubscriptionInfo) -> bool,
    ) -> SubscriptionInfo {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let info = self.info(stream).await.unwrap();
            if is_there(&info) {
                return info;
            }
            assert!(Instant::now() < deadline, "still {info:?}");
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn replay(
        &mut self,
        stream: &str,
        stop_at: Option<i64>,
    ) -> Result<(), Status> {
        use replay_parked_req::options::{StopAtOption, StreamOption};
        let stop_at = stop_at.map_or(StopAtOption::NoLimit(Empty {}), StopAtOption::StopAt);
        let options = replay_parked_req::Options {
            group_name: "g".to_owned(),
            stream_option: Some(StreamOption::StreamIdentifier(of_stream(stream))),
            stop_at_option: Some(stop_at),
        };
        self.client.replay_parked(ReplayParkedReq { options: Some(options) }).await.map(|_| ())
    }

    /// Subscribes and waits for the confirmation.
    pub(super) async fn subscribe(
        &self,
        stream: &str,
        buffer_size: i32,
    ) -> Result<Consumer, Status> {
        let of = match stream {
            "$all" => ReadOf::All(Empty {}),
            stream => ReadOf::StreamIdentifier(of_stream(stream)),
        };
        let options = read_req::Options {
            stream_option: Some(of),
            group_name: "g".to_owned(),
            buffer_size,
            uuid_option: None,
        };
        let (requests, receiver) = mpsc::channel(100);
        let request = ReadReq { content: Some(Content::Options(options)) };
        requests.send(request).await.unwrap();
        let outgoing = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|request| (request, receiver))
        });
        let mut client = self.client.clone();
        let answers = client.read(outgoing).await?.into_inner();
        let mut consumer = Consumer { requests, answers };
        match consumer.answer().await? {
            Answer::SubscriptionConfirmation(confirmation) => {
                assert_eq!(confirmation.subscription_id, format!("{stream}::g"));
            }
            Answer::Event(_) => panic!("an event came before the confirmation"),
        }
        Ok(consumer)
    }
}

pub(super) struct Consumer {
    requests: mpsc::Sender<ReadReq>,
    answers: Streaming<ReadResp>,
}

/// A message as a consumer sees it.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) event: Option<RecordedEvent>,
    pub(super) link: Option<RecordedEvent>,
    pub(super) retries: i32,
}

impl Message {
    /// By which it is acknowledged.
    pub(super) fn id(&self) -> WireUuid {
        self.link.as_ref().or(self.event.as_ref()).unwrap().id.clone().unwrap()
    }

    /// The number that is its data.
    pub(super) fn number(&self) -> u64 {
        let data = &self.event.as_ref().unwrap().data;
        std::str::from_utf8(data).unwrap().parse().unwrap()
    }

    pub(super) fn stream(&self) -> String {
        let name = &self.event.as_ref().unwrap().stream_identifier.as_ref().unwrap().stream_name;
        String::from_utf8(name.to_vec()).unwrap()
    }
}

impl Consumer {
    async fn answer(&mut self) -> Result<Answer, Status> {
        let answer = timeout(PATIENCE, self.answers.message()).await.expect("nothing came")?;
        Ok(answer.expect("the subscription ended without a reason").content.unwrap())
    }

    /// The next message.
    pub(super) async fn try_next(&mut self) -> Result<Message, Status> {
        match self.answer().await? {
            Answer::Event(event) => {
                let Some(Count::RetryCount(retries)) = event.count else { panic!("no count") };
                assert!(event.position.is_some());
                Ok(Message { event: event.event, link: event.link, retries })
            }
            Answer::SubscriptionConfirmation(_) => panic!("confirmed twice"),
        }
    }

    pub(super) async fn next(&mut self) -> Message {
        self.try_next().await.unwrap()
    }

    /// The next messages' numbers, each acknowledged.
    pub(super) async fn work(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        for _ in 0..count {
            let message = self.next().await;
            numbers.push(message.number());
            self.ack(&[&message]).await;
        }
        numbers
    }

    /// The status with which the subscription ends, whatever still comes before.
    pub(super) async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.try_next().await {
                return status;
            }
        }
    }

    pub(super) async fn ack(&self, messages: &[&Message]) {
        let ids = messages.iter().map(|message| message.id()).collect();
        self.ack_ids(ids).await;
    }

    pub(super) async fn ack_ids(&self, ids: Vec<WireUuid>) {
        self.send(Content::Ack(Ack { id: Vec::new().into(), ids })).await;
    }

    pub(super) async fn nack(&self, message: &Message, action: Action) {
        let ids = vec![message.id()];
        let reason = "because".to_owned();
        self.send(Content::Nack(Nack {
            id: Vec::new().into(),
            ids,
            action: action as i32,
            reason,
        }))
        .await;
    }

    pub(super) async fn send(&self, content: Content) {
        // Nobody listens any more where the subscription has ended.
        let _ = self.requests.send(ReadReq { content: Some(content) }).await;
    }

    /// Says that nothing will be acknowledged any more, but goes on listening.
    pub(super) fn half_close(self) -> Streaming<ReadResp> {
        self.answers
    }
}

/// An id that no message has.
pub(super) fn strange_id() -> WireUuid {
    WireUuid { value: Some(Value::String(uuid::Uuid::new_v4().to_string())) }
}

/// Checks code and trailers.
pub(super) fn assert_status(status: &Status, code: Code, exception: &str, stream: &str) {
    let trailer = |name| status.metadata().get(name).map(|value| value.to_str().unwrap());
    assert_eq!(status.code(), code, "{status:?}");
    assert_eq!(trailer("exception"), Some(exception), "{status:?}");
    assert_eq!(trailer("stream-name"), Some(stream));
    assert_eq!(trailer("group-name"), Some("g"));
}
