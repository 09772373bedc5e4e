//! What the two sides of one connection share: its faults, and who waits on it.

use super::{MemoryConnection, NetworkState};
use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use tokio::sync::watch;

/// How a connection was ended by the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Cut,
    Reset,
}

/// Each side's reader and writer.
pub(super) const WAITERS: usize = 4;

#[derive(Debug, Default)]
struct Wires {
    frozen: bool,
    end: Option<End>,
    wakers: [Option<Waker>; WAITERS],
}

#[derive(Debug)]
pub(super) struct Link {
    wires: Mutex<Wires>,
    number: usize,
    state: watch::Sender<NetworkState>,
}

impl Link {
    pub(super) fn new(frozen: bool, number: usize, state: watch::Sender<NetworkState>) -> Self {
        Self {
            wires: Mutex::new(Wires {
                frozen,
                ..Wires::default()
            }),
            number,
            state,
        }
    }

    fn wires(&self) -> MutexGuard<'_, Wires> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether bytes may be read now. `Err` is how the connection ended.
    pub(super) fn poll_read(&self, waiter: usize, context: &Context<'_>) -> Poll<Result<(), End>> {
        self.poll(waiter, context, true)
    }

    /// Whether bytes may be written now.
    pub(super) fn poll_write(&self, waiter: usize, context: &Context<'_>) -> Result<(), End> {
        match self.poll(waiter, context, false) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    fn poll(&self, waiter: usize, context: &Context<'_>, read: bool) -> Poll<Result<(), End>> {
        // Cloned before locking: a waker may run anything.
        let waker = context.waker().clone();
        let mut wires = self.wires();
        if let Some(end) = wires.end {
            return Poll::Ready(Err(end));
        }
        // Stored even if the pipe is free, because the pipe may turn out to be empty or full: a cut wakes it then.
        let old = wires.wakers[waiter].replace(waker);
        // Pending: a thaw, a cut or a reset wakes it.
        let frozen = wires.frozen && read;
        drop(wires);
        drop(old);
        if frozen {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.change(|wires| wires.frozen = frozen);
    }

    pub(super) fn end(&self, end: End) {
        self.change(|wires| wires.end = wires.end.or(Some(end)));
        self.closed();
    }

    fn change(&self, change: impl FnOnce(&mut Wires)) {
        let mut wires = self.wires();
        change(&mut wires);
        let woken = std::mem::take(&mut wires.wakers);
        drop(wires);
        woken.into_iter().flatten().for_each(Waker::wake);
    }

    pub(super) fn closed(&self) {
        self.note(|connection| connection.open = false);
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut MemoryConnection)) {
        self.state.send_modify(|state| {
            if let Some(connection) = state.connections.get_mut(self.number) {
                change(connection);
            }
        });
    }
}

impl From<End> for io::Error {
    fn from(end: End) -> Self {
        match end {
            End::Cut => io::ErrorKind::BrokenPipe.into(),
            End::Reset => io::ErrorKind::ConnectionReset.into(),
        }
    }
}
