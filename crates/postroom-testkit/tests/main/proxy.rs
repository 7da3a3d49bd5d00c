//! The proxy does what a test asks of it.

use postroom_testkit::{Passage, Proxy, eventually};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Answers every byte with the same, and counts them.
fn echo() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut bytes = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    count.fetch_add(read, Ordering::AcqRel);
                    let _ = stream.write_all(&bytes[..read]);
                }
            });
        }
    });
    (address, seen)
}

fn ask(stream: &mut TcpStream, word: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(word)?;
    let mut answer = vec![0; word.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[test]
fn everything_passes_until_it_is_told_otherwise() {
    let (server, _) = echo();
    let proxy = Proxy::start(server);
    let mut open = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(ask(&mut open, b"hello").unwrap(), b"hello");
    proxy.set(Passage::Reset);
    let mut refused = TcpStream::connect(proxy.address()).unwrap();
    assert!(ask(&mut refused, b"hello").is_err());
    assert_eq!(ask(&mut open, b"again").unwrap(), b"again", "what is open stays");
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn an_answer_is_swallowed_after_the_work_is_done() {
    let (server, seen) = echo();
    let proxy = Proxy::start(server);
    proxy.set(Passage::SwallowAnswer(b"COMMIT"));
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(ask(&mut stream, b"BEGIN").unwrap(), b"BEGIN");
    assert!(ask(&mut stream, b"COMMIT").is_err());
    eventually("the server to have it", Duration::from_secs(5), async || {
        (seen.load(Ordering::Acquire) == b"BEGINCOMMIT".len()).then_some(())
    })
    .await;
}

#[test]
fn a_half_open_connection_takes_everything_and_answers_nothing_while_new_ones_work() {
    let (server, seen) = echo();
    let proxy = Proxy::start(server);
    let mut old = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(ask(&mut old, b"hello").unwrap(), b"hello");
    proxy.half_open();
    old.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(ask(&mut old, b"lost").is_err());
    let mut new = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(ask(&mut new, b"again").unwrap(), b"again");
    assert_eq!(seen.load(Ordering::Acquire), b"helloagain".len(), "the server never had it");
}
