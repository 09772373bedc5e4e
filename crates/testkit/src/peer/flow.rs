//! The client's flow-control windows.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use tokio::sync::Notify;

/// The largest DATA payload: one frame at the protocol's default maximum.
const MAX_DATA: i64 = 16_384;

/// The window that the protocol starts with.
const START: i64 = 65_535;

/// Window arithmetic for one connection; the streams' tasks wait on it for room.
#[derive(Debug)]
pub(super) struct Flow {
    windows: Mutex<Windows>,
    grown: Notify,
}

#[derive(Debug)]
struct Windows {
    connection: i64,
    initial: i64,
    streams: HashMap<u32, i64>,
}

impl Flow {
    pub(super) fn new() -> Self {
        let windows = Windows {
            connection: START,
            initial: START,
            streams: HashMap::new(),
        };
        Self {
            windows: Mutex::new(windows),
            grown: Notify::new(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Windows)) {
        change(&mut self.windows.lock().unwrap_or_else(PoisonError::into_inner));
        self.grown.notify_waiters();
    }

    /// A new stream; its window starts at the client's initial size.
    pub(super) fn open(&self, stream: u32) {
        self.change(|windows| {
            windows.streams.insert(stream, windows.initial);
        });
    }

    /// The stream will send nothing more.
    pub(super) fn close(&self, stream: u32) {
        self.change(|windows| {
            windows.streams.remove(&stream);
        });
    }

    /// SETTINGS_INITIAL_WINDOW_SIZE: it moves all open streams by the difference.
    pub(super) fn initial(&self, bytes: u32) {
        self.change(|windows| {
            let moved = i64::from(bytes) - windows.initial;
            windows.initial = i64::from(bytes);
            windows
                .streams
                .values_mut()
                .for_each(|window| *window = window.saturating_add(moved));
        });
    }

    /// WINDOW_UPDATE, for the connection if `stream` is 0.
    pub(super) fn update(&self, stream: u32, bytes: u32) {
        self.change(|windows| {
            let window = if stream == 0 {
                Some(&mut windows.connection)
            } else {
                windows.streams.get_mut(&stream)
            };
            if let Some(window) = window {
                *window = window.saturating_add(i64::from(bytes));
            }
        });
    }

    /// Waits until the windows have room and takes at most `wanted` bytes of it. A stream that is closed here has no window
    /// of its own: only the connection's counts then.
    pub(super) async fn take(&self, stream: u32, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            // Registered before the look, so that growth in between is not missed.
            grown.as_mut().enable();
            let taken = self.try_take(stream, wanted);
            if taken > 0 {
                return taken;
            }
            grown.await;
        }
    }

    fn try_take(&self, stream: u32, wanted: usize) -> usize {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let own = windows.streams.get(&stream).copied().unwrap_or(i64::MAX);
        let room = own.min(windows.connection).clamp(0, MAX_DATA);
        let taken = wanted.min(usize::try_from(room).unwrap_or(0));
        windows.connection -= taken as i64;
        if let Some(window) = windows.streams.get_mut(&stream) {
            *window -= taken as i64;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_windows_limit_and_a_smaller_initial_size_may_make_one_negative() {
        let flow = Flow::new();
        flow.open(1);
        assert_eq!(flow.try_take(1, 100_000), 16_384);
        assert_eq!(flow.try_take(1, 10), 10);
        flow.initial(10);
        assert_eq!(
            flow.try_take(1, 1),
            0,
            "the stream's window is below zero now"
        );
        flow.update(1, 16_384);
        assert_eq!(flow.try_take(1, 1_000), 0, "exactly zero");
        flow.update(1, 5);
        assert_eq!(flow.try_take(1, 1_000), 5);
    }

    #[test]
    fn a_closed_stream_uses_the_connection_window_only() {
        let flow = Flow::new();
        flow.initial(0);
        flow.open(1);
        assert_eq!(flow.try_take(1, 5), 0);
        flow.close(1);
        assert_eq!(flow.try_take(1, 5), 5);
    }
}
