//! The watches of one stream.

use std::collections::VecDeque;

use bytes::Bytes;
use steadfast_core::BoxError;
use steadfast_resume::{Pass, Rest};

use super::messages::{self, Asked, CREATE_ID, START_REVISION, Told, canceled, number, told_again};

/// The id of responses that concern all watches, or one that couldn't be created.
const NO_WATCH: i64 = -1;

/// The watches of one stream, by the order in which the caller made them.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: Vec<Watch>,
    /// Those that the server was asked to make and hasn't answered, by place in `all`. It answers in order.
    awaited: VecDeque<usize>,
    /// Whether the caller waits for word of progress.
    progress: bool,
}

#[derive(Debug)]
struct Watch {
    /// The caller's `WatchCreateRequest`.
    request: Bytes,
    state: State,
    /// The id that the caller knows. None until it was told.
    id: Option<i64>,
    /// The id on the present attempt. None until the server told it.
    served_as: Option<i64>,
    /// The revision that is wanted next; 0 is as the request says.
    next: i64,
    /// Events of that revision that were delivered already: it came in fragments, not yet all.
    delivered: usize,
    /// How many of those will come again on this attempt.
    again: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    /// The caller asked for its end and wasn't told of it.
    Cancelling,
    Ended,
}

impl Watches {
    /// The caller's request goes out.
    pub(super) fn sent(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        match Asked::read(message)? {
            Asked::Create(request) => {
                number(request, CREATE_ID)?;
                self.awaited.push_back(self.all.len());
                self.all.push(Watch {
                    next: number(request, START_REVISION)?,
                    request: Bytes::copy_from_slice(request),
                    state: State::Live,
                    id: None,
                    served_as: None,
                    delivered: 0,
                    again: 0,
                });
            }
            Asked::Cancel(id) => {
                let watch = self.all.iter_mut().find(|watch| watch.is_known_as(id));
                if let Some(watch) = watch {
                    watch.state = State::Cancelling;
                    let served_as = watch.served_as.unwrap_or(id);
                    if served_as != id {
                        return Ok(Pass::Instead(messages::cancel(served_as)));
                    }
                }
            }
            Asked::Progress => self.progress = true,
            Asked::Other => {}
        }
        Ok(Pass::AsIs)
    }

    /// The server's response came.
    pub(super) fn received(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        let told = Told::read(message)?;
        if told.created {
            return self.created(message, &told);
        }
        if told.id == NO_WATCH {
            self.progress = false;
            return Ok(Pass::AsIs);
        }
        let served =
            |watch: &&mut Watch| watch.served_as == Some(told.id) && watch.state != State::Ended;
        // Of a watch that isn't known there is nothing to keep.
        let Some(watch) = self.all.iter_mut().find(served) else {
            return Ok(Pass::AsIs);
        };
        let id = watch.id.unwrap_or(told.id);
        let without = watch.take(&told);
        if told.canceled {
            watch.end();
        }
        if id == told.id && without == 0 {
            return Ok(Pass::AsIs);
        }
        told_again(message, id, without, false).map(Pass::Instead)
    }

    /// A watch was created, or couldn't be.
    fn created(&mut self, message: &[u8], told: &Told) -> Result<Pass, BoxError> {
        let place = self.awaited.pop_front();
        let place = place.ok_or("a watch was created that wasn't asked for")?;
        let free = match told.id {
            NO_WATCH => NO_WATCH,
            id => self.free_id(id),
        };
        let watch = &mut self.all[place];
        let first = watch.id.is_none();
        let id = *watch.id.get_or_insert(free);
        watch.served_as = Some(told.id);
        if told.canceled {
            watch.end();
        } else if watch.next == 0 {
            // It watches from now on.
            watch.next = told.revision.saturating_add(1);
        }
        match (first, told.canceled) {
            (true, _) if id == told.id => Ok(Pass::AsIs),
            (true, _) => told_again(message, id, 0, true).map(Pass::Instead),
            (false, true) => told_again(message, id, 0, false).map(Pass::Instead),
            // The caller knows of it.
            (false, false) => Ok(Pass::Withhold),
        }
    }

    /// This id, or another if the caller knows a live watch by it: on another attempt the server has given its ids
    /// anew.
    fn free_id(&self, id: i64) -> i64 {
        if !self.all.iter().any(|watch| watch.is_known_as(id)) {
            return id;
        }
        let highest = self.all.iter().filter_map(|watch| watch.id).max();
        highest.unwrap_or(id).saturating_add(1)
    }

    /// Whether the caller waits for an answer, and not for events.
    pub(super) fn is_owed(&self) -> bool {
        let ends = |watch: &Watch| watch.state == State::Cancelling;
        self.progress || !self.awaited.is_empty() || self.all.iter().any(ends)
    }

    /// What the next attempt begins with: each live watch at its next revision.
    pub(super) fn rest(&mut self) -> Result<Rest, BoxError> {
        let (mut requests, mut first) = (Vec::new(), Vec::new());
        self.awaited.clear();
        self.all.retain_mut(|watch| match (watch.state, watch.id) {
            (State::Live, _) => true,
            // Its end is what the caller waits for.
            (State::Cancelling, Some(id)) => {
                first.push(canceled(id));
                false
            }
            _ => false,
        });
        for (place, watch) in self.all.iter_mut().enumerate() {
            requests.push(watch.anew()?);
            self.awaited.push_back(place);
        }
        if self.progress {
            requests.push(messages::progress());
        }
        Ok(Rest::Send { requests, first })
    }
}

impl Watch {
    fn is_known_as(&self, id: i64) -> bool {
        self.id == Some(id) && self.state != State::Ended
    }

    fn end(&mut self) {
        self.state = State::Ended;
        // What is kept of it is its place.
        self.request = Bytes::new();
    }

    /// Takes note of a response, and says how many of its first events the caller has already.
    fn take(&mut self, told: &Told) -> usize {
        let Some(last) = told.events.last() else {
            // Word of progress: there is nothing up to this revision that hasn't come.
            if !told.canceled && !told.fragment && self.delivered == 0 {
                self.next = self.next.max(told.revision.saturating_add(1));
            }
            return 0;
        };
        let old = told.events.iter().take_while(|it| **it < self.next).count();
        let of_next = told.events[old..].iter().take_while(|it| **it == self.next);
        let again = of_next.count().min(self.again);
        self.again -= again;
        let new = &told.events[old + again..];
        if told.fragment {
            let of_last = new.iter().filter(|it| *it == last).count();
            let before = if *last == self.next {
                self.delivered
            } else {
                0
            };
            (self.next, self.delivered) = (*last, before + of_last);
        } else {
            (self.next, self.delivered) = (self.next.max(last.saturating_add(1)), 0);
        }
        if self.delivered == 0 {
            self.again = 0;
        }
        old + again
    }

    /// The request that makes it on another attempt, by the id that the caller knows.
    fn anew(&mut self) -> Result<Bytes, BoxError> {
        self.served_as = None;
        self.again = self.delivered;
        messages::create(&self.request, self.next, self.id.unwrap_or(0))
    }
}
