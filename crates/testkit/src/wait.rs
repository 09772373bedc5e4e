//! Waiting for a condition on shared state, without polling it.

use std::{error, fmt, time::Duration};
use tokio::{sync::watch, time};

/// What was waited for did not happen within the hang bound.
#[derive(Clone, Debug)]
pub struct Hang {
    pub(crate) bound: Duration,
    pub(crate) state: String,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the condition did not hold within {:?}; the state then was {}",
            self.bound, self.state
        )
    }
}

impl error::Error for Hang {}

pub(crate) async fn wait_until<S: fmt::Display>(
    state: &watch::Sender<S>,
    bound: Duration,
    condition: impl FnMut(&S) -> bool,
) -> Result<(), Hang> {
    let mut changes = state.subscribe();
    match time::timeout(bound, changes.wait_for(condition)).await {
        Ok(Ok(_)) => Ok(()),
        // The caller lends us the sender, so the channel cannot be closed: only the bound ends the wait.
        Ok(Err(_)) | Err(_) => Err(Hang {
            bound,
            state: state.borrow().to_string(),
        }),
    }
}
