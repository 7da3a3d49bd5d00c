//! A receiver on a real socket that answers byte by byte as a test says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
    /// Which connection it came over.
    pub(crate) connection: usize,
}

/// A whole answer to a request.
pub(crate) type Respond = Arc<dyn Fn(&Request) -> Vec<u8> + Send + Sync>;

/// What the receiver does with a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Sends what this makes of the request, and keeps the connection open.
    By(Respond),
    /// Sends this and keeps the connection open.
    Bytes(Vec<u8>),
    /// Sends this, then one more byte for as long as anybody listens.
    Trickle(Vec<u8>),
    /// Sends this, then zeros without end, as fast as they are taken.
    Flood(Vec<u8>),
    /// Says nothing and keeps the connection open.
    Silence,
    /// Closes the connection.
    HangUp,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Bytes of flood that were taken.
    pub(crate) flooded: Arc<Mutex<usize>>,
}

impl Receiver {
    pub(crate) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let flooded = Arc::<Mutex<usize>>::default();
        let (seen, taken) = (Arc::clone(&requests), Arc::clone(&flooded));
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(
                    stream,
                    connection,
                    answer.clone(),
                    Arc::clone(&seen),
                    Arc::clone(&taken),
                ));
            }
        });
        Self { address, requests, flooded }
    }

    pub(crate) async fn answering(status: &str, headers: &str) -> Self {
        let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\n\r\n");
        Self::start(Answer::Bytes(answer.into_bytes())).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?key=s3cret", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    answer: Answer,
    requests: Arc<Mutex<Vec<Request>>>,
    flooded: Arc<Mutex<usize>>,
) {
    while let Some(mut request) = read_request(&mut stream).await {
        request.connection = connection;
        let made = match &answer {
            Answer::By(respond) => respond(&request),
            _ => Vec::new(),
        };
        requests.lock().unwrap().push(request);
        match &answer {
            Answer::By(_) => {
                if stream.write_all(&made).await.is_err() {
                    return;
                }
            }
            Answer::Bytes(bytes) => {
                if stream.write_all(bytes).await.is_err() {
                    return;
                }
            }
            Answer::Trickle(bytes) => {
                let _ = stream.write_all(bytes).await;
                loop {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    if stream.write_all(b"x").await.is_err() {
                        return;
                    }
                }
            }
            Answer::Flood(bytes) => {
                let _ = stream.write_all(bytes).await;
                while stream.write_all(&[b'0'; 4096]).await.is_ok() {
                    *flooded.lock().unwrap() += 4096;
                }
                return;
            }
            Answer::Silence => {
                // Ends when the client hangs up.
                let _ = stream.read_u8().await;
                return;
            }
            Answer::HangUp => return,
        }
    }
}

pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes[head_end + 4..].to_vec()).unwrap();
    Some(Request { line, headers, body, connection: 0 })
}
