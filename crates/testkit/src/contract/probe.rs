//! A caller that polls by hand.

use super::Violation;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::{sync::Notify, task::yield_now};

/// How often a poll may be repeated because its waker was woken without anything that the test did. A waker may be woken for
/// nothing now and then: by a task's budget, or by a background task on its way to idleness.
const PATIENCE: usize = 64;

/// Yields after which all tasks that can run have run.
const YIELDS: usize = 64;

#[derive(Debug, Default)]
struct Wakes {
    count: AtomicUsize,
    bell: Notify,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, SeqCst);
        self.bell.notify_one();
    }
}

/// Polls things by hand, with a waker that counts, and finds busy loops.
///
/// ```
/// use std::task::Poll;
/// use steadfast_testkit::contract::{Probe, Violation};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (probe, (sender, mut receiver)) = (Probe::new(), tokio::sync::mpsc::channel(1));
/// assert_eq!(probe.poll(|context| receiver.poll_recv(context)).await, Ok(Poll::Pending));
/// sender.try_send("news").unwrap();
/// assert_eq!(probe.wakes(), 1);
/// let spins = probe.poll(|context| {
///     context.waker().wake_by_ref();
///     Poll::<()>::Pending
/// });
/// assert_eq!(spins.await, Err(Violation::Spins));
/// # }
/// ```
#[derive(Debug)]
pub struct Probe {
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

impl Probe {
    /// A probe whose waker was never woken.
    pub fn new() -> Self {
        let wakes = Arc::<Wakes>::default();
        Self {
            waker: Waker::from(Arc::clone(&wakes)),
            wakes,
        }
    }

    /// How often its waker was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.count.load(SeqCst)
    }

    /// Polls once, and whenever that woke the waker again, until it is Ready, or Pending with all tasks idle.
    ///
    /// # Errors
    /// [`Violation::Spins`] when there is no end to it.
    pub async fn poll<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<Poll<T>, Violation> {
        for _ in 0..PATIENCE {
            let before = self.wakes();
            if let Poll::Ready(value) = poll(&mut Context::from_waker(&self.waker)) {
                return Ok(Poll::Ready(value));
            }
            settle().await;
            if self.wakes() == before {
                return Ok(Poll::Pending);
            }
        }
        Err(Violation::Spins)
    }

    /// Waits until the waker is woken; at once if it was since the last such wait. Cancel safe.
    pub async fn woken(&self) {
        self.wakes.bell.notified().await;
    }
}

/// Whether the last of two probes was woken, for something that both were Pending on in turn.
pub(super) fn judge(first: (&Probe, usize), last: (&Probe, usize)) -> Result<(), Violation> {
    if last.0.wakes() > last.1 {
        Ok(())
    } else if first.0.wakes() > first.1 {
        Err(Violation::WakerStale)
    } else {
        Err(Violation::WakerLost)
    }
}

/// Lets all tasks run that can.
pub(super) async fn settle() {
    for _ in 0..YIELDS {
        yield_now().await;
    }
}
