//! One proxied connection: the task that owns both sockets.

use super::{
    Control, End, ProxiedConnection, ProxyState,
    count::HeadersCounter,
    lane::{Direction, Lanes},
};
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
    let lanes = Lanes::new();
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
                    (&lanes, Direction::ToServer),
                    &notes
                ),
                pump(
                    from_server,
                    to_client,
                    control.clone(),
                    (&lanes, Direction::ToClient),
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
    (lanes, direction): (&Lanes, Direction),
    notes: &Notes,
) -> io::Result<()> {
    // Bytes and when they may go on; `None` is the end of the stream.
    let mut queue: VecDeque<(Instant, Option<Bytes>)> = VecDeque::new();
    let mut queued = 0;
    // Off the lane, on their way into the socket.
    let mut current = Bytes::new();
    let mut throttle = Throttle::new();
    let mut ended = false;
    let mut counter = HeadersCounter::new();
    let mut buffer = BytesMut::new();
    loop {
        let faults = control.borrow_and_update().faults;
        let (frozen, muted) = (faults.frozen, faults.muted);
        if !frozen {
            while let Some((due, front)) = queue.front()
                && *due <= now()
                && let Some(bytes) = front
                && current.is_empty()
            {
                let pings = lanes.feed(direction, bytes, muted);
                if pings > 0 {
                    notes.note(|connection| connection.pings += pings);
                }
                queued -= bytes.len();
                queue.pop_front();
                current = lanes.take(direction, muted, usize::MAX);
            }
            if current.is_empty() {
                current = lanes.take(direction, muted, usize::MAX);
            }
        }
        let due = queue.front().map(|(due, _)| *due).filter(|_| !frozen);
        let ready = due.is_some_and(|due| due <= now());
        if ready && !muted && current.is_empty() {
            // All before it has gone, so this is the end.
            return to.shutdown().await;
        }
        let (most, free) = throttle.most(faults.bytes_per_second);
        let writes = !frozen && !current.is_empty() && most > 0;
        let next = match (writes, due) {
            (true, _) => free.filter(|free| *free > now()),
            (false, due) => due.filter(|_| !ready),
        };
        let part = current.slice(..current.len().min(most));
        buffer.reserve(CHUNK);
        tokio::select! {
            biased;
            changed = control.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = lanes.bell(direction).notified() => {}
            written = to.write(&part), if writes && next.is_none() => {
                let written = written?;
                current.advance(written);
                throttle.wrote(written);
                notes.note(|connection| match direction {
                    Direction::ToServer => connection.to_server += written as u64,
                    Direction::ToClient => connection.to_client += written as u64,
                });
            }
            () = time::sleep_until(next.unwrap_or_else(now)), if next.is_some() => {}
            read = from.read_buf(&mut buffer), if !ended && !frozen && queued < QUEUE => {
                ended = read? == 0;
                let bytes = buffer.split().freeze();
                queued += bytes.len();
                if direction == Direction::ToServer {
                    let headers = counter.feed(&bytes);
                    notes.note(|connection| connection.headers += headers);
                }
                let delay = match direction {
                    Direction::ToServer => faults.to_server,
                    Direction::ToClient => faults.to_client,
                };
                queue.push_back((now() + delay, (!ended).then_some(bytes)));
            }
        }
    }
}

/// Spreads bytes evenly over time.
struct Throttle {
    rate: Option<u64>,
    /// When the bytes written so far are paid for.
    free: Instant,
}

impl Throttle {
    fn new() -> Self {
        Self {
            rate: None,
            free: now(),
        }
    }

    /// The most bytes for the next write, and when it may be.
    fn most(&mut self, rate: Option<u64>) -> (usize, Option<Instant>) {
        if rate != self.rate {
            *self = Self {
                rate,
                ..Self::new()
            };
        }
        match rate {
            None => (CHUNK, None),
            // A twentieth of a second at once, so that little of a high rate is lost to the timer.
            Some(rate) => {
                let most = usize::try_from(rate.div_ceil(20)).unwrap_or(CHUNK);
                (most.min(CHUNK), Some(self.free))
            }
        }
    }

    fn wrote(&mut self, bytes: usize) {
        if let Some(rate) = self.rate {
            let time = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            self.free = self.free.max(now()) + time;
        }
    }
}
