//! Queues without memory of their own: doubly linked lists threaded through the values of a map.
//!
//! So a call costs no allocation, one that is dropped leaves from the middle of its queue at once, and
//! nothing is kept of a flow that went idle.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// A map by ids that need no further hashing.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Maps smaller than this don't shrink.
const SMALL: usize = 64;

/// Spreads the bits of one number: ids are either hashes or consecutive.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: neighbours end up far apart.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Gives memory back after a peak. A map shrinks when it is mostly empty and to twice what it needs, so
/// that load which comes and goes doesn't resize it each time.
pub(crate) fn shrink<K: Eq + Hash, V>(map: &mut Map<K, V>) {
    if map.capacity() > SMALL && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

/// A value's neighbours in a list.
#[derive(Debug)]
pub(crate) struct Link<K> {
    before: Option<K>,
    after: Option<K>,
}

/// The two ends of a list.
#[derive(Debug)]
pub(crate) struct List<K> {
    first: Option<K>,
    last: Option<K>,
}

impl<K> Default for Link<K> {
    fn default() -> Self {
        Self {
            before: None,
            after: None,
        }
    }
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self {
            first: None,
            last: None,
        }
    }
}

impl<K: Copy + Eq + Hash> List<K> {
    pub(crate) fn first(&self) -> Option<K> {
        self.first
    }

    /// Appends `key`, whose value `link` finds the link of this list in.
    pub(crate) fn push<V>(
        &mut self,
        key: K,
        map: &mut Map<K, V>,
        link: impl Fn(&mut V) -> &mut Link<K>,
    ) {
        if let Some(value) = map.get_mut(&key) {
            *link(value) = Link {
                before: self.last,
                after: None,
            };
        }
        match self.last.and_then(|last| map.get_mut(&last)) {
            Some(last) => link(last).after = Some(key),
            None => self.first = Some(key),
        }
        self.last = Some(key);
    }

    /// Takes `key` out, wherever it is. It must be in this list.
    pub(crate) fn remove<V>(
        &mut self,
        key: K,
        map: &mut Map<K, V>,
        link: impl Fn(&mut V) -> &mut Link<K>,
    ) {
        let Some(value) = map.get_mut(&key) else {
            return;
        };
        let Link { before, after } = std::mem::take(link(value));
        match before.and_then(|before| map.get_mut(&before)) {
            Some(before) => link(before).after = after,
            None => self.first = after,
        }
        match after.and_then(|after| map.get_mut(&after)) {
            Some(after) => link(after).before = before,
            None => self.last = before,
        }
    }
}
