//! The meter of a channel: what it carries and whether it may be picked, in one word.
//!
//! The hot half is one atomic: requests in flight, the sum of all charges, and the standing. A pick
//! reads it with one relaxed load and claims a place with one compare-and-swap. The cold half, behind
//! a lock that only failures and state changes take, remembers which owner said what, so that one
//! layer's "open again" can't undo another's "shut".

use std::{
    fmt,
    sync::{Arc, PoisonError},
};

use tokio::sync::Notify;

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

mod reading;

use reading::*;
pub use reading::{Reading, Standing};

/// The meter of one channel. Clones show the same channel.
#[derive(Clone)]
pub struct Meter(Arc<Inner>);

struct Inner {
    word: AtomicU64,
    cold: Mutex<Cold>,
}

#[derive(Default)]
struct Cold {
    owners: Vec<Entry>,
    next_key: u64,
    condemned_for: Option<Arc<str>>,
    /// Why a layer asks for a replacement, until the pool has heard it.
    replace_for: Option<Arc<str>>,
    bells: Vec<Arc<Notify>>,
    /// Whether the word showed a trial after the last change.
    shows_trial: bool,
}

struct Entry {
    key: u64,
    standing: Standing,
    trial: bool,
    charge: u32,
}

impl Meter {
    /// The meter of a channel that carries nothing and is open.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            word: AtomicU64::new(LIMIT_UNKNOWN << LIMIT_SHIFT),
            cold: Mutex::new(Cold::default()),
        }))
    }

    /// What it shows now. One relaxed load.
    #[must_use]
    #[inline]
    pub fn read(&self) -> Reading {
        Reading(self.0.word.load(Ordering::Relaxed))
    }

    /// Counts one more request in flight if nothing has changed since `seen`; a trial is used up by it.
    ///
    /// On success the caller owes one [`Meter::release`]. On failure it gets what the meter shows now.
    ///
    /// # Errors
    /// The present reading, when the meter changed since `seen`.
    #[inline]
    pub fn claim(&self, seen: Reading) -> Result<(), Reading> {
        self.0
            .word
            .compare_exchange(
                seen.0,
                (seen.0 + 1) & !TRIAL,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .map(drop)
            .map_err(Reading)
    }

    /// Counts one more request in flight, whatever the meter shows. The caller owes one
    /// [`Meter::release`].
    #[inline]
    pub fn enter(&self) {
        self.0.word.fetch_add(1, Ordering::Acquire);
    }

    /// Counts one request less in flight, and says how many were there before.
    #[inline]
    pub fn release(&self) -> u32 {
        let before = Reading(self.0.word.fetch_sub(1, Ordering::SeqCst));
        debug_assert!(before.in_flight() > 0, "released more often than entered");
        before.in_flight()
    }

    /// For the transport: the peer allows this many streams at a time; none while it hasn't said. Rings
    /// the bells, since a higher limit may let a call go on.
    pub fn set_stream_limit(&self, streams: Option<u32>) {
        let limit = streams.map_or(LIMIT_UNKNOWN, |streams| u64::from(streams).min(LIMIT_MAX));
        let cold = self.cold();
        let before = self
            .0
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                Some((word & !LIMIT_MASK) | limit << LIMIT_SHIFT)
            });
        let changed = before.is_ok_and(|word| word & LIMIT_MASK != limit << LIMIT_SHIFT);
        let bells = if changed {
            cold.bells.clone()
        } else {
            Vec::new()
        };
        drop(cold);
        for bell in bells {
            bell.notify_waiters();
        }
    }

    /// A voice on this meter for one layer: its own standing and its own charge. They end with it.
    #[must_use]
    pub fn owner(&self) -> MeterOwner {
        let mut cold = self.cold();
        let key = cold.next_key;
        cold.next_key += 1;
        cold.owners.push(Entry {
            key,
            standing: Standing::Open,
            trial: false,
            charge: 0,
        });
        drop(cold);
        MeterOwner {
            meter: self.clone(),
            key,
        }
    }

    /// Rings `bell` (with `notify_waiters`) whenever the standing changes, a trial included, or the
    /// stream limit.
    pub fn ring_on_change(&self, bell: Arc<Notify>) {
        self.cold().bells.push(bell);
    }

    /// Why the channel was condemned, if it was: the first cause that was given.
    #[must_use]
    pub fn condemned_for(&self) -> Option<Arc<str>> {
        self.cold().condemned_for.clone()
    }

    /// For the pool: why a layer asks for a replacement of this channel, if one has asked since the
    /// last time.
    #[must_use]
    pub fn take_replacement(&self) -> Option<Arc<str>> {
        self.cold().replace_for.take()
    }

    /// Whether both show the same channel.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn cold(&self) -> MutexGuard<'_, Cold> {
        // The lock guards plain data that no panic can leave half-written, so a poisoned one is good.
        self.0.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one owner's entry, writes the sums into the word, and rings the bells after unlocking.
    /// `edit` gives back the key of the owner that grants a trial by it, if it does.
    fn change(&self, edit: impl FnOnce(&mut Cold) -> Option<u64>) {
        let mut cold = self.cold();
        let granted = edit(&mut cold);
        let kept = cold.summary(|entry| entry.trial);
        let spent = cold.summary(|entry| entry.trial && Some(entry.key) == granted);
        // A pick uses a trial up in the word only; here the owners learn of it. A trial that the word
        // never showed, because another owner held the channel back, isn't used up.
        let used = |word: u64| cold.shows_trial && word & TRIAL == 0;
        let next = |word: u64| {
            (word & (IN_FLIGHT_MASK | LIMIT_MASK)) | if used(word) { spent } else { kept }
        };
        // Under the lock, so that two owners' summaries reach the word in the order they were made.
        let before = self
            .0
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(next(word)))
            .unwrap_or_else(|word| word);
        let (used, after) = (used(before), next(before));
        if used {
            let owners = cold.owners.iter_mut();
            owners.for_each(|entry| entry.trial &= Some(entry.key) == granted);
        }
        cold.shows_trial = after & TRIAL != 0;
        let bells = if (before ^ after) & STANDING_MASK == 0 {
            Vec::new()
        } else {
            cold.bells.clone()
        };
        drop(cold);
        for bell in bells {
            bell.notify_waiters();
        }
    }
}

impl Cold {
    fn entry(&mut self, key: u64, edit: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.owners.iter_mut().find(|o| o.key == key) {
            edit(entry);
        }
    }

    /// The sums for the word; `trial` says whose trials count.
    fn summary(&self, trial: impl Fn(&Entry) -> bool) -> u64 {
        let charge: u64 = self.owners.iter().map(|o| u64::from(o.charge)).sum();
        let standing = self.owners.iter().map(|o| o.standing).max();
        // A trial is one owner's word about its own reserve; another owner's reserve stands.
        let mut reserves = self
            .owners
            .iter()
            .filter(|o| o.standing == Standing::Reserve);
        let trial = self.owners.iter().any(&trial) && reserves.all(&trial);
        let bits = match standing.unwrap_or_default() {
            Standing::Open => 0,
            Standing::Reserve => RESERVE,
            Standing::Shut => SHUT,
            Standing::Condemned => CONDEMNED,
        };
        (charge.min(CHARGE_MAX) << IN_FLIGHT_BITS) | bits | if trial { TRIAL } else { 0 }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.read()).finish()
    }
}

/// One layer's voice on a [`Meter`]: a standing and a charge of its own. Dropping it takes both back,
/// a condemnation excepted.
pub struct MeterOwner {
    meter: Meter,
    key: u64,
}

impl MeterOwner {
    /// The meter it speaks on.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What this owner says of the channel. A pick goes by the worst that any owner says.
    /// [`Standing::Condemned`] can't be taken back; use [`MeterOwner::condemn`] to say why.
    pub fn set_standing(&self, standing: Standing) {
        self.edit(|entry| {
            entry.trial = false;
            if entry.standing != Standing::Condemned {
                entry.standing = standing;
            }
        });
    }

    /// How many requests busier than it looks this owner says the channel is.
    pub fn set_charge(&self, requests: u32) {
        self.edit(|entry| entry.charge = requests);
    }

    /// Lets one request through as if the channel were open, if this owner holds it in reserve. The
    /// pick that claims the channel uses it up.
    pub fn grant_trial(&self) {
        self.meter.change(|cold| {
            let reserve = |o: &&mut Entry| o.key == self.key && o.standing == Standing::Reserve;
            let entry = cold.owners.iter_mut().find(reserve)?;
            entry.trial = true;
            Some(self.key)
        });
    }

    /// Says that the channel is to be replaced, and why. The first cause stays.
    pub fn condemn(&self, cause: impl Into<Arc<str>>) {
        let cause = cause.into();
        self.meter.change(|cold| {
            cold.condemned_for.get_or_insert(cause);
            cold.entry(self.key, |entry| {
                entry.standing = Standing::Condemned;
                entry.trial = false;
            });
            None
        });
    }

    /// Asks the pool for another channel in this one's place. The pool makes and warms that one first;
    /// until then, and if it can't be made, this channel stays. Nothing happens where no pool is.
    pub fn ask_for_replacement(&self, cause: impl Into<Arc<str>>) {
        let mut cold = self.meter.cold();
        cold.replace_for = Some(cause.into());
        let bells = cold.bells.clone();
        drop(cold);
        for bell in bells {
            bell.notify_waiters();
        }
    }

    /// The worst standing that any *other* owner gives the channel. A pool gives its channels
    /// [`Standing::Shut`] while it warms them and when they drain: then they aren't among those that
    /// serve.
    #[must_use]
    pub fn others(&self) -> Standing {
        let cold = self.meter.cold();
        let others = cold.owners.iter().filter(|o| o.key != self.key);
        others.map(|o| o.standing).max().unwrap_or_default()
    }

    fn edit(&self, edit: impl FnOnce(&mut Entry)) {
        self.meter.change(|cold| {
            cold.entry(self.key, edit);
            None
        });
    }
}

impl Drop for MeterOwner {
    fn drop(&mut self) {
        self.meter.change(|cold| {
            // What is condemned stays so: nobody else may use the channel after its owner went.
            cold.owners
                .retain(|o| o.key != self.key || o.standing == Standing::Condemned);
            cold.entry(self.key, |entry| entry.charge = 0);
            None
        });
    }
}

impl fmt::Debug for MeterOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeterOwner")
            .field("meter", &self.meter)
            .field("key", &self.key)
            .finish()
    }
}
