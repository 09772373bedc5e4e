//! Streams cut at seeded places, in every way, and what their caller gets: each message once, in order, or a prefix of
//! them and an error that names the cause.
//!
//! A stream has 100 messages. A scripted HTTP/2 peer cuts it once or twice; a real tonic client reads it through
//! `ResumableStream` over a pool of three channels. All of it follows from the seed, but for the order in which tasks run.

mod client;
mod plan;
mod serve;
mod verdict;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use steadfast_testkit::{
    memory::{self, Network},
    peer::{Answer, Peer, Script, Step},
};

pub use plan::{Cause, Plan};
pub use verdict::{Row, Verdict, rows, table};

/// Messages of a stream.
pub const MESSAGES: u32 = 100;

/// The largest message that the layer and the client take, in bytes.
pub const LIMIT: usize = 64 << 10;

/// What connects client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Memory: for a paused clock, too.
    Memory,
    /// Loopback.
    Tcp,
}

/// How a seed is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What connects both sides.
    pub wire: Wire,
    /// The gap time-out.
    pub gap: Duration,
    /// Attempts of a stream, the first included. It must be more than the two cuts; where the clock is real, a busy
    /// machine makes gaps of its own, so that some must be to spare.
    pub attempts: u32,
}

impl Options {
    /// In memory: 5 s of gap, 3 attempts. Its silences take their time unless the clock is paused.
    pub const PAUSED: Self = Self {
        wire: Wire::Memory,
        gap: Duration::from_secs(5),
        attempts: 3,
    };
    /// Over loopback: 50 ms of gap.
    pub const TCP: Self = Self {
        wire: Wire::Tcp,
        gap: Duration::from_millis(50),
        attempts: 10,
    };
}

/// Where the client dials.
#[derive(Clone)]
enum Dial {
    Memory(Network),
    Tcp(SocketAddr),
}

/// Runs the stream of one seed.
///
/// # Errors
/// When loopback can't be listened on.
pub async fn run(seed: u64, options: Options) -> std::io::Result<Verdict> {
    let plan = Arc::new(Plan::new(seed));
    let (peer, dial) = match options.wire {
        Wire::Memory => {
            let (network, incoming) = memory::network();
            let script = script(&plan);
            let peer = Peer::serve(incoming, move |_| script.clone());
            (peer, Dial::Memory(network))
        }
        Wire::Tcp => {
            let peer = Peer::start(script(&plan))?;
            let address = peer.addr();
            (peer, Dial::Tcp(address))
        }
    };
    let read = client::read(dial, options).await;
    drop(peer);
    Ok(Verdict::of(&plan, read))
}

/// The n-th request gets the n-th attempt's answer, whatever connection it comes on.
fn script(plan: &Arc<Plan>) -> Script {
    let plan = Arc::clone(plan);
    let attempts = AtomicUsize::new(0);
    Script::new(move |request| {
        let attempt = attempts.fetch_add(1, Relaxed);
        let (plan, stream) = (Arc::clone(&plan), request.stream);
        Answer::steps([Step::respond(move |body| {
            serve::steps(&plan, attempt, stream, body)
        })])
    })
}
