//! What the server can do, as it tells clients.

use crate::proto::server_features::server_features_server::ServerFeatures;
use crate::proto::server_features::{SupportedMethod, SupportedMethods};
use crate::proto::shared::Empty;
use tonic::{Request, Response, Status};

/// The version of KurrentDB whose protocol this is. From 25.1 on, clients may expect appends to
/// several streams at once, which are not here.
const VERSION: &str = "24.10.0";

const STREAMS: &str = "event_store.client.streams.streams";
const PERSISTENT: &str = "event_store.client.persistent_subscriptions.persistentsubscriptions";
const OPERATIONS: &str = "event_store.client.operations.operations";
const GOSSIP: &str = "event_store.client.gossip.gossip";
const FEATURES: &str = "event_store.client.server_features.serverfeatures";

/// Services, their methods, and what these can do beyond their first versions. Clients look for all
/// of this in small letters.
const METHODS: [(&str, &str, &[&str]); 18] = [
    (STREAMS, "read", &["position", "events"]),
    (STREAMS, "append", &[]),
    (STREAMS, "batchappend", &["deadline_duration"]),
    (STREAMS, "delete", &[]),
    (STREAMS, "tombstone", &[]),
    (PERSISTENT, "create", &["stream", "all"]),
    (PERSISTENT, "update", &["stream", "all"]),
    (PERSISTENT, "delete", &["stream", "all"]),
    (PERSISTENT, "read", &["stream", "all"]),
    (PERSISTENT, "getinfo", &["stream", "all"]),
    (PERSISTENT, "replayparked", &["stream", "all"]),
    (PERSISTENT, "list", &["stream", "all"]),
    (PERSISTENT, "restartsubsystem", &[]),
    (OPERATIONS, "startscavenge", &[]),
    (OPERATIONS, "stopscavenge", &[]),
    (OPERATIONS, "restartpersistentsubscriptions", &[]),
    (GOSSIP, "read", &[]),
    (FEATURES, "getsupportedmethods", &[]),
];

/// Tells clients what they can call.
#[derive(Debug)]
pub(crate) struct FeaturesService;

#[tonic::async_trait]
impl ServerFeatures for FeaturesService {
    async fn get_supported_methods(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<SupportedMethods>, Status> {
        let methods = METHODS
            .iter()
            .map(|(service, method, features)| SupportedMethod {
                method_name: (*method).to_owned(),
                service_name: (*service).to_owned(),
                features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            })
            .collect();
        let event_store_server_version = VERSION.to_owned();
        Ok(Response::new(SupportedMethods { methods, event_store_server_version }))
    }
}
