//! Who is in the cluster: this server alone.

use super::connection::Peer;
use super::gate::Authority;
use super::wire;
use crate::proto::gossip::gossip_server::Gossip;
use crate::proto::gossip::{ClusterInfo, EndPoint, MemberInfo, member_info};
use crate::proto::shared::Empty;
use tonic::{Extensions, Request, Response, Status};
use uuid::Uuid;

/// Tells clients where the leader is: at the address by which they reached this server, which works
/// behind a translated address and with the name of a certificate.
#[derive(Debug)]
pub(crate) struct GossipService {
    instance: Uuid,
}

impl GossipService {
    pub(crate) fn new() -> Self {
        Self { instance: Uuid::new_v4() }
    }
}

#[tonic::async_trait]
impl Gossip for GossipService {
    async fn read(&self, request: Request<Empty>) -> Result<Response<ClusterInfo>, Status> {
        let now = wire::now();
        let member = MemberInfo {
            instance_id: Some(wire::structured(self.instance)),
            time_stamp: now.seconds * 10_000_000 + i64::from(now.nanos) / 100,
            state: member_info::State::Leader as i32,
            is_alive: true,
            http_end_point: Some(end_point(request.extensions())?),
        };
        Ok(Response::new(ClusterInfo { members: vec![member] }))
    }
}

fn end_point(extensions: &Extensions) -> Result<EndPoint, Status> {
    let authority = extensions.get::<Authority>();
    let local = extensions.get::<Peer>().map(|peer| peer.local);
    let (address, port) = match (authority, local) {
        (Some(Authority(authority)), local) => {
            let host = authority.host().trim_matches(['[', ']']).to_owned();
            (host, authority.port_u16().or(local.map(|local| local.port())))
        }
        (None, Some(local)) => (local.ip().to_string(), Some(local.port())),
        (None, None) => (String::new(), None),
    };
    match port {
        Some(port) if !address.is_empty() => Ok(EndPoint { address, port: u32::from(port) }),
        Some(_) | None => Err(Status::invalid_argument("the request names no host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::codegen::http::uri;

    fn extensions(authority: Option<&'static str>) -> Extensions {
        let mut extensions = Extensions::new();
        if let Some(authority) = authority {
            extensions.insert(Authority(uri::Authority::from_static(authority)));
        }
        extensions.insert(Peer { local: "127.0.0.1:2113".parse().unwrap(), remote: None });
        extensions
    }

    fn told(authority: Option<&'static str>) -> (String, u32) {
        let end_point = end_point(&extensions(authority)).unwrap();
        (end_point.address, end_point.port)
    }

    #[test]
    fn the_leader_is_where_the_client_reached_the_server() {
        assert_eq!(told(Some("log.example.org:7113")), ("log.example.org".to_owned(), 7113));
        assert_eq!(told(Some("[::1]:7113")), ("::1".to_owned(), 7113));
        assert_eq!(told(Some("log.example.org")), ("log.example.org".to_owned(), 2113));
        assert_eq!(told(None), ("127.0.0.1".to_owned(), 2113));
    }

    #[test]
    fn a_request_from_nowhere_is_refused() {
        assert!(end_point(&Extensions::new()).is_err());
    }
}
