//! Watch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::BoxError;
use steadfast_resume::{BidiRule, Conversation, Pass, Rest};

use super::watches::Watches;

/// The rule for etcd's `Watch`.
///
/// On another channel each live watch is made again at its next revision: that behind the last event that the caller
/// got, or behind the last word of progress; one that watches from now on goes on from the revision at which it was
/// made. Watches that were cancelled are left out; of one whose end the caller was still waiting for, it gets the end.
/// The caller goes on knowing its watches by the ids that it was told first. It isn't told again that they were made.
///
/// A revision that came in fragments is only behind the watch when its last fragment came: of its events those that
/// had come are left out when they come again. A watch that can't be made again, because the revision was compacted
/// meanwhile, ends as etcd says it: cancelled, with `compact_revision`.
///
/// Word of progress that is for all watches at once (id -1) goes up and moves none of them on, since older servers may
/// send it before events that precede it.
///
/// Quiet is normal on a watch: the gap time-out runs only while the caller waits for an answer to what it sent (a watch
/// made or cancelled, word of progress). That a channel fell silent under a quiet watch is told by what asks the channel
/// itself: StallDetect, or HTTP/2 keepalive.
///
/// A watch lives for days, so count attempts with
/// [`AttemptsPer::Progress`](steadfast_resume::AttemptsPer::Progress).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch;

impl BidiRule for Watch {
    fn method(&self) -> &str {
        "/etcdserverpb.Watch/Watch"
    }

    fn begin(&self) -> Arc<dyn Conversation> {
        Arc::new(Stream(Mutex::default()))
    }
}

/// One call. The lock is held while a message is looked at, and over nothing else.
struct Stream(Mutex<Watches>);

impl Stream {
    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conversation for Stream {
    fn sent(&self, message: &[u8]) -> Result<Pass, BoxError> {
        self.watches().sent(message)
    }

    fn received(&self, message: &[u8]) -> Result<Pass, BoxError> {
        self.watches().received(message)
    }

    fn is_owed(&self) -> bool {
        self.watches().is_owed()
    }

    fn rest(&self) -> Result<Rest, BoxError> {
        self.watches().rest()
    }
}
