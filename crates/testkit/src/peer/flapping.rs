//! Connections that keep dying, in every way: what a client must never lose or repeat a call over.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{Accept, Answer, Last, Request, Script, Settings, Step};

/// How a connection dies once it has served its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// FIN.
    Fin,
    /// TCP RST.
    TcpReset,
    /// GOAWAY that admits nothing after the last request that was answered, then FIN.
    GoawayBelow,
    /// GOAWAY that admits what has come; it is answered.
    GoawayAt,
    /// The same, and the connection closes before the answer.
    GoawayAtFin,
    /// The same with an error code.
    GoawayError,
    /// GOAWAY that admits whatever will come, then FIN.
    GoawayMax,
    /// Every second request is refused, and at the end FIN.
    Refuse,
    /// A part of the headers, then FIN.
    InHeaders,
    /// Headers and a message, then FIN.
    InBody,
    /// Headers and a message, then GOAWAY with an error that leaves the request out, and FIN.
    GoawayInBody,
}

impl Death {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Fin,
        Self::TcpReset,
        Self::GoawayBelow,
        Self::GoawayAt,
        Self::GoawayAtFin,
        Self::GoawayError,
        Self::GoawayMax,
        Self::Refuse,
        Self::InHeaders,
        Self::InBody,
        Self::GoawayInBody,
    ];
}

/// The scripts of a server whose connections serve a few requests each and then die, some of them with few
/// streams at a time. The same seed gives the same connections, in the order in which they are asked for.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use steadfast_testkit::peer::{Death, Flapping, Peer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// static PROCESSED: AtomicU64 = AtomicU64::new(0);
/// let flapping = Flapping::new(7, &Death::ALL, |_request| {
///     PROCESSED.fetch_add(1, Ordering::Relaxed);
/// });
/// let peer = Peer::scripted(move |_| flapping.next_connection())?;
/// // … calls to `peer.uri()`, and a look at which of them were processed.
/// # Ok(())
/// # }
/// ```
pub struct Flapping {
    dice: Mutex<Dice>,
    deaths: Vec<Death>,
    processed: Arc<dyn Fn(&Request) + Send + Sync>,
}

impl Flapping {
    /// Connections that die in these ways. `processed` hears of each request that the server's application gets
    /// to see: not of those that the peer refuses or doesn't admit.
    ///
    /// # Panics
    /// Without a way to die.
    pub fn new(
        seed: u64,
        deaths: &[Death],
        processed: impl Fn(&Request) + Send + Sync + 'static,
    ) -> Self {
        assert!(!deaths.is_empty(), "a connection dies in some way");
        Self {
            dice: Mutex::new(Dice(seed)),
            deaths: deaths.to_vec(),
            processed: Arc::new(processed),
        }
    }

    /// The script of the next connection.
    pub fn next_connection(&self) -> Script {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        match dice.roll(16) {
            0 => return Script::good().accept(Accept::Fin),
            1 => return Script::good().accept(Accept::TcpReset),
            _ => {}
        }
        let death = self.deaths[dice.roll(self.deaths.len() as u64) as usize];
        let share = 4 + dice.roll(24);
        let settings = Settings {
            // Few streams: the others wait in h2 and in hyper.
            max_concurrent_streams: (dice.roll(2) == 0).then(|| 1 + dice.roll(4) as u32),
            ..Settings::default()
        };
        drop(dice);
        let processed = Arc::clone(&self.processed);
        let script = Script::new(move |request| answer(request, death, share, &*processed));
        script.settings(settings)
    }
}

/// What the request gets on a connection that dies like this with its `share`th one.
fn answer(request: &Request, death: Death, share: u64, processed: &dyn Fn(&Request)) -> Answer {
    let last_served = Last::Id(request.stream.saturating_sub(2));
    let dies = request.index == share;
    let after = request.index > share;
    let steps = match death {
        // Here the peer says that it won't look at it, so the application never sees it.
        Death::Refuse if !dies && request.index % 2 == 1 => {
            return Answer::steps([Step::Rst(7)]);
        }
        Death::GoawayBelow | Death::GoawayError if dies => {
            let code = if matches!(death, Death::GoawayError) {
                2
            } else {
                0
            };
            return Answer::steps([Step::goaway(code, last_served), Step::Fin]);
        }
        // It came before the GOAWAY was written, and is not admitted by it.
        Death::GoawayBelow | Death::GoawayError | Death::GoawayAt | Death::GoawayInBody
            if after =>
        {
            return Answer::silence();
        }
        _ if !dies => Vec::new(),
        Death::Fin | Death::Refuse | Death::GoawayBelow | Death::GoawayError => {
            vec![Step::Fin]
        }
        Death::TcpReset => vec![Step::TcpReset],
        Death::GoawayAt => vec![Step::goaway(0, Last::This)],
        Death::GoawayAtFin => vec![Step::goaway(0, Last::Highest), Step::Fin],
        Death::GoawayMax => vec![Step::goaway(0, Last::Max), Step::Fin],
        Death::InHeaders => vec![
            Step::Bytes(Bytes::from_static(b"\0\0\x28\x01\x04\0\0\0\x01\x88")),
            Step::Fin,
        ],
        Death::GoawayInBody => vec![
            Step::headers(),
            Step::good_message(),
            Step::goaway(2, last_served),
            Step::Fin,
        ],
        Death::InBody => vec![Step::headers(), Step::good_message(), Step::Fin],
    };
    processed(request);
    let answer = [Step::AwaitRequest].into_iter().chain(steps);
    Answer::steps(answer.chain([Step::headers(), Step::good_message(), Step::status(0, "")]))
}

impl fmt::Debug for Flapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flapping")
            .field("deaths", &self.deaths)
            .finish_non_exhaustive()
    }
}

/// A small generator: the same numbers in each run, on each machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
