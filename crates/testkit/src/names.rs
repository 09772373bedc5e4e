//! A resolver whose answers the test changes.
//!
//! ```
//! use steadfast_testkit::names::Names;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let names = Names::new(["127.0.0.1:4001".parse().unwrap()]);
//! assert_eq!(names.resolve("any.test").await.unwrap().len(), 1);
//! names.fail("no such host");
//! let error = names.resolve("any.test").await.unwrap_err();
//! assert_eq!((error.to_string().as_str(), names.lookups()), ("no such host", 2));
//! # }
//! ```

pub use crate::wait::Hang;

use crate::wait::wait_until;
use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
    vec,
};
use tokio::sync::watch;
use tower_service::Service;

#[derive(Clone, Debug)]
enum Reply {
    Addresses(Vec<SocketAddr>),
    Fail(String),
    Hang,
}

/// What a resolver was asked.
#[derive(Clone, Debug)]
struct Asked {
    reply: Reply,
    names: Vec<String>,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after lookups of {:?}", self.reply, self.names)
    }
}

/// A resolver that gives every name the same list of addresses, and counts its lookups. Clones are the same resolver.
///
/// It is a `tower` service of anything that prints as a name, so hyper-util's `HttpConnector::new_with_resolver` takes it. That
/// connector uses the URI's port and not the addresses' unless the URI has none.
#[derive(Clone, Debug)]
pub struct Names(Arc<watch::Sender<Asked>>);

impl Names {
    /// A resolver with this list.
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self(Arc::new(watch::Sender::new(Asked {
            reply: Reply::Addresses(addresses.into_iter().collect()),
            names: Vec::new(),
        })))
    }

    /// Answers with this list from now on, lookups that hang included. An empty list is an answer too.
    pub fn set(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.reply(Reply::Addresses(addresses.into_iter().collect()));
    }

    /// Fails lookups from now on, those that hang included, with an `io::Error` that says this.
    pub fn fail(&self, message: &str) {
        self.reply(Reply::Fail(message.to_owned()));
    }

    /// Lets lookups wait until [`Names::set`] or [`Names::fail`] is called.
    pub fn hang(&self) {
        self.reply(Reply::Hang);
    }

    fn reply(&self, reply: Reply) {
        self.0.send_modify(|asked| asked.reply = reply);
    }

    /// Lookups begun so far.
    pub fn lookups(&self) -> usize {
        self.0.borrow().names.len()
    }

    /// The names that were looked up, in order.
    pub fn names(&self) -> Vec<String> {
        self.0.borrow().names.clone()
    }

    /// Waits until at least this many lookups have begun. `bound` is how long to wait before the test counts as hung. Cancel
    /// safe.
    pub async fn wait_for_lookups(&self, lookups: usize, bound: Duration) -> Result<(), Hang> {
        wait_until(&self.0, bound, |asked| asked.names.len() >= lookups).await
    }

    /// Looks a name up. Dropped while it hangs, it is still counted.
    ///
    /// # Errors
    /// What [`Names::fail`] said.
    pub async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.0
            .send_modify(|asked| asked.names.push(name.to_owned()));
        let mut replies = self.0.subscribe();
        let answered = replies.wait_for(|asked| !matches!(asked.reply, Reply::Hang));
        // The sender lives as long as `self`.
        match answered.await.map(|asked| asked.reply.clone()) {
            Ok(Reply::Addresses(addresses)) => Ok(addresses),
            Ok(Reply::Fail(message)) => Err(io::Error::other(message)),
            Ok(Reply::Hang) | Err(_) => std::future::pending().await,
        }
    }
}

impl<N: fmt::Display> Service<N> for Names {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<vec::IntoIter<SocketAddr>>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: N) -> Self::Future {
        let (names, name) = (self.clone(), name.to_string());
        Box::pin(async move { names.resolve(&name).await.map(Vec::into_iter) })
    }
}
