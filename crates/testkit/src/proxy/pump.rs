//! One proxied connection: the task that owns both sockets.

use super::{Control, End, ProxiedConnection, ProxyState, count::HeadersCounter};
use crate::clock::now;
use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    time::{self, Instant},
};

/// How many bytes of one direction may wait for their delay.
const QUEUE: usize = 1024 * 1024;

/// The most bytes moved at once.
const CHUNK: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// Notes what passed, and that the connection closed, however its task ends.
pub(super) struct Notes {
    pub(super) number: u64,
    pub(super) state: watch::Sender<ProxyState>,
}

impl Notes {
    fn note(&self, change: impl FnOnce(&mut ProxiedConnection)) {
        self.state.send_modify(|state| {
            if let Some(connection) = usize::try_from(self.number)
                .ok()
                .and_then(|at| state.connections.get_mut(at))
            {
                change(connection);
            }
        });
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.note(|connection| connection.open = false);
    }
}

/// Moves bytes until both sides have closed, one of them fails, or the test ends the connection.
pub(super) async fn run(
    mut client: TcpStream,
    upstream: SocketAddr,
    control: watch::Receiver<Control>,
    notes: Notes,
) {
    let mut server = None;
    let end = {
        let mut ends = control.clone();
        let moved = async {
            let server = server.insert(TcpStream::connect(upstream).await?);
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            tokio::try_join!(
                pump(
                    from_client,
                    to_server,
                    control.clone(),
                    Direction::ToServer,
                    &notes
                ),
                pump(
                    from_server,
                    to_client,
                    control.clone(),
                    Direction::ToClient,
                    &notes
                ),
            )
        };
        tokio::select! {
            biased;
            end = wait_for_end(&mut ends) => Some(end),
            moved = moved => moved.is_err().then_some(End::Reset),
        }
    };
    let sockets = [Some(client), server].into_iter().flatten();
    match end {
        None => {}
        Some(End::Reset) => sockets.for_each(|socket| reset(&socket)),
        Some(End::Cut) => {
            notes.note(|connection| connection.open = false);
            let mut cut: Vec<_> = sockets.collect();
            for socket in &mut cut {
                let _ = socket.shutdown().await;
            }
            // Closing with unread bytes would send RST instead, so both sides are read to their end.
            for mut socket in cut {
                let mut scrap = vec![0; CHUNK];
                while let Ok(1..) = socket.read(&mut scrap).await {}
            }
        }
    }
}

/// Makes the coming close a TCP reset. A failure means that the socket is closed already.
pub(super) fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// The end that the test asks for.
pub(super) async fn wait_for_end(control: &mut watch::Receiver<Control>) -> End {
    loop {
        let end = control.borrow_and_update().end;
        if let Some(end) = end {
            return end;
        }
        if control.changed().await.is_err() {
            // The proxy is going away and takes this task with it.
            std::future::pending::<()>().await;
        }
    }
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut control: watch::Receiver<Control>,
    direction: Direction,
    notes: &Notes,
) -> io::Result<()> {
    // Bytes and when they may go on; `None` is the end of the stream.
    let mut queue: VecDeque<(Instant, Option<Bytes>)> = VecDeque::new();
    let mut queued = 0;
    let mut ended = false;
    let mut counter = HeadersCounter::new();
    let mut buffer = BytesMut::new();
    loop {
        let now_set = *control.borrow_and_update();
        let delay = if direction == Direction::ToServer {
            now_set.to_server
        } else {
            now_set.to_client
        };
        let due = queue.front().map(|(due, _)| *due);
        let ready = due.is_some_and(|due| due <= now());
        if ready && !now_set.frozen && queue.front().is_some_and(|(_, bytes)| bytes.is_none()) {
            return to.shutdown().await;
        }
        buffer.reserve(CHUNK);
        tokio::select! {
            biased;
            changed = control.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            written = write_front(&mut to, &mut queue), if ready && !now_set.frozen => {
                let written = written?;
                queued -= written;
                notes.note(|connection| match direction {
                    Direction::ToServer => connection.to_server += written as u64,
                    Direction::ToClient => connection.to_client += written as u64,
                });
            }
            () = time::sleep_until(due.unwrap_or_else(now)), if due.is_some() && !ready && !now_set.frozen => {}
            read = from.read_buf(&mut buffer), if !ended && !now_set.frozen && queued < QUEUE => {
                ended = read? == 0;
                let bytes = buffer.split().freeze();
                queued += bytes.len();
                if direction == Direction::ToServer {
                    let headers = counter.feed(&bytes);
                    notes.note(|connection| connection.headers += headers);
                }
                queue.push_back((now() + delay, (!ended).then_some(bytes)));
            }
        }
    }
}

/// Writes from the front of the queue. Cancel safe: nothing leaves the queue before it is written.
async fn write_front(
    to: &mut WriteHalf<'_>,
    queue: &mut VecDeque<(Instant, Option<Bytes>)>,
) -> io::Result<usize> {
    let Some((_, Some(bytes))) = queue.front_mut() else {
        return Ok(0);
    };
    let written = to.write(bytes).await?;
    bytes.advance(written);
    if bytes.is_empty() {
        queue.pop_front();
    }
    Ok(written)
}
