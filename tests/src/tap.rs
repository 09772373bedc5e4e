//! Looks at the frames that a client sends.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The client's preface, which is no frame.
const PREFACE: usize = 24;

/// A frame that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its type: 0 is DATA, 1 HEADERS, 3 RST_STREAM.
    pub kind: u8,
    /// Its flags; 1 is END_STREAM.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
}

/// Passes one connection on to `upstream`, and notes what the client sends. Says where to connect.
///
/// # Panics
/// When no port can be had.
pub async fn tap(upstream: SocketAddr) -> (String, Arc<Mutex<Vec<Sent>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    let frames = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&frames);
    tokio::spawn(async move {
        // An error is the end of the connection, which the test sees by itself.
        let _ = pass(listener, upstream, &noted).await;
    });
    (format!("http://{addr}"), frames)
}

async fn pass(
    listener: TcpListener,
    upstream: SocketAddr,
    noted: &Mutex<Vec<Sent>>,
) -> std::io::Result<()> {
    let (client, _) = listener.accept().await?;
    let server = TcpStream::connect(upstream).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut preface = [0; PREFACE];
    from_client.read_exact(&mut preface).await?;
    to_server.write_all(&preface).await?;
    loop {
        let mut head = [0; 9];
        from_client.read_exact(&mut head).await?;
        let [l0, l1, l2, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let stream = u32::from_be_bytes(stream);
        let mut payload = vec![0; length as usize];
        from_client.read_exact(&mut payload).await?;
        noted.lock().expect("nobody panics with it").push(Sent {
            kind,
            flags,
            stream,
        });
        to_server.write_all(&[&head[..], &payload].concat()).await?;
    }
}
