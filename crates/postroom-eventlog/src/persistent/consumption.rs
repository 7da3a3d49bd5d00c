//! A consumer's subscription: messages go out, acknowledgements come in.

use super::error::Error;
use super::group::{Command, NackAction, Refused, Subscribed};
use super::group_id::GroupId;
use super::message::ConsumerId;
use super::registry::{Registry, ask};
use super::responses;
use super::subscriber::{Deliveries, Ended, Identity, Presence};
use super::{requests, status};
use crate::proto::persistent_subscriptions::read_req::nack::Action;
use crate::proto::persistent_subscriptions::read_req::options::StreamOption;
use crate::proto::persistent_subscriptions::read_req::{Ack, Content, Nack};
use crate::proto::persistent_subscriptions::{ReadReq, ReadResp};
use crate::proto::shared::Uuid as WireUuid;
use crate::server::connection::Peer;
use crate::server::encode::IdForm;
use crate::server::reads::OpenRead;
use crate::server::wire;
use futures_util::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Request, Status, Streaming};

/// How many messages a consumer may have at once, whatever it asks for.
const SLOTS_MAX: usize = 10_000;
/// How many messages one answer of a consumer may speak of.
const IDS_MAX: usize = 10_000;
/// How many ids a group is told at once.
const IDS_PER_COMMAND: usize = 1_000;
/// How long to look for acknowledgements that a consumer sent before it went.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The longest reason that is passed on, in characters.
const REASON_MAX: usize = 1_024;

/// The messages of a consumer, which end with an error and never just so: clients take that for a
/// broken server.
#[derive(Debug)]
pub struct Messages {
    id: GroupId,
    form: IdForm,
    deliveries: Deliveries,
    is_confirmed: bool,
    is_over: bool,
    _open: OpenRead,
}

impl Stream for Messages {
    type Item = Result<ReadResp, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if !this.is_confirmed {
            this.is_confirmed = true;
            return Poll::Ready(Some(Ok(responses::confirmation(this.id.to_string()))));
        }
        match this.deliveries.poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(delivery)) => {
                Poll::Ready(Some(Ok(responses::message(&delivery, this.form))))
            }
            Poll::Ready(Err(ended)) => {
                this.is_over = true;
                Poll::Ready(Some(Err(status::of_end(&this.id, ended))))
            }
        }
    }
}

/// Has a consumer join the group that its first message names.
pub(super) async fn begin(
    registry: &Registry,
    open: OpenRead,
    request: Request<Streaming<ReadReq>>,
) -> Result<Messages, Status> {
    let identity = identity(&request);
    let mut requests = request.into_inner();
    let Some(ReadReq { content: Some(Content::Options(options)) }) = requests.message().await?
    else {
        return Err(Status::invalid_argument("the first message must have the options"));
    };
    let slots = usize::try_from(options.buffer_size).unwrap_or(0).min(SLOTS_MAX);
    if slots == 0 {
        return Err(Status::invalid_argument("buffer_size must be 1 or more"));
    }
    let form = IdForm::of(options.uuid_option.as_ref());
    let stream = match options.stream_option {
        Some(StreamOption::StreamIdentifier(stream)) => Some(stream),
        Some(StreamOption::All(_)) => None,
        None => return Err(Status::invalid_argument("the options name no stream")),
    };
    let id = requests::group_id(stream, options.group_name).map_err(status::of_error)?;
    let commands = registry.group(&id).await.map_err(status::of_error)?;
    let subscribe = |reply| Command::Subscribe { identity, slots, reply };
    // The same task that hears of the consumer has to hear what it acknowledges.
    let subscribed = ask(&commands, &id, subscribe).await.map_err(status::of_error)?;
    let Subscribed { consumer, deliveries, presence } = subscribed.map_err(|refused| {
        status::of_error(match refused {
            Refused::Full => Error::Full(id.clone()),
            Refused::Failed(reason) => Error::Failed(id.clone(), reason),
        })
    })?;
    tokio::spawn(listen(Listener { commands, consumer, presence }, requests));
    Ok(Messages { id, form, deliveries, is_confirmed: false, is_over: false, _open: open })
}

/// Who hears what a consumer says.
struct Listener {
    commands: mpsc::Sender<Command>,
    consumer: ConsumerId,
    presence: Presence,
}

/// A consumer says nothing more, or its group does not listen any more.
struct Over;

async fn listen(mut listener: Listener, mut requests: Streaming<ReadReq>) {
    loop {
        let request = tokio::select! {
            biased;
            request = requests.message() => request,
            () = listener.presence.closed() => break,
        };
        match request {
            Ok(Some(request)) => {
                if listener.obey(request).await.is_err() {
                    return;
                }
            }
            // It cannot acknowledge any more. Its stream stays open until it goes.
            Ok(None) => {
                let consumer = listener.consumer;
                if listener.commands.send(Command::Retire { consumer }).await.is_ok() {
                    listener.presence.closed().await;
                }
                return;
            }
            Err(_) => return,
        }
    }
    while let Ok(Ok(Some(request))) = timeout(LAST_WORDS, requests.message()).await {
        if listener.obey(request).await.is_err() {
            return;
        }
    }
}

impl Listener {
    async fn obey(&self, request: ReadReq) -> Result<(), Over> {
        let consumer = self.consumer;
        match request.content {
            Some(Content::Ack(Ack { ids, .. })) => {
                for ids in self.ids(&ids).await?.chunks(IDS_PER_COMMAND) {
                    self.send(Command::Ack { consumer, ids: ids.to_vec() }).await?;
                }
                Ok(())
            }
            Some(Content::Nack(nack)) => self.refuse(nack).await,
            Some(Content::Options(_)) => {
                self.dismiss("only the first message may have options").await
            }
            None => self.dismiss("a message neither acknowledges nor refuses anything").await,
        }
    }

    async fn refuse(&self, nack: Nack) -> Result<(), Over> {
        let action = match Action::try_from(nack.action) {
            Ok(Action::Unknown | Action::Retry) | Err(_) => NackAction::Retry,
            Ok(Action::Park) => NackAction::Park,
            Ok(Action::Skip) => NackAction::Skip,
            Ok(Action::Stop) => NackAction::Stop,
        };
        let consumer = self.consumer;
        let ids = self.ids(&nack.ids).await?;
        let reason: String = nack.reason.chars().take(REASON_MAX).collect();
        for ids in ids.chunks(IDS_PER_COMMAND) {
            let (ids, reason) = (ids.to_vec(), reason.clone());
            self.send(Command::Nack { consumer, ids, action, reason }).await?;
        }
        Ok(())
    }

    async fn ids(&self, ids: &[WireUuid]) -> Result<Vec<uuid::Uuid>, Over> {
        if ids.len() > IDS_MAX {
            let why = format!("an acknowledgement or refusal has at most {IDS_MAX} ids");
            self.dismiss(&why).await?;
            return Err(Over);
        }
        match ids.iter().map(|id| wire::uuid(Some(id))).collect::<Result<_, Status>>() {
            Ok(ids) => Ok(ids),
            Err(error) => {
                self.dismiss(error.message()).await?;
                Err(Over)
            }
        }
    }

    async fn dismiss(&self, why: &str) -> Result<(), Over> {
        let why = Ended::Invalid(why.to_owned());
        self.send(Command::Dismiss { consumer: self.consumer, why }).await?;
        Err(Over)
    }

    async fn send(&self, command: Command) -> Result<(), Over> {
        self.commands.send(command).await.map_err(|_| Over)
    }
}

fn identity(request: &Request<Streaming<ReadReq>>) -> Identity {
    let header = |name| request.metadata().get(name).and_then(|value| value.to_str().ok());
    let peer = request.extensions().get::<Peer>().and_then(|peer| peer.remote);
    Identity {
        from: peer.or(request.remote_addr()).map(|address| address.to_string()).unwrap_or_default(),
        user: "anonymous".to_owned(),
        connection: header("connection-name").unwrap_or_default().chars().take(256).collect(),
    }
}
