//! How methods that may be repeated are named.

/// What a method that may be repeated answers with, and so how long it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One message, or a stream that fits into memory: the reply is kept until its trailers came, so that
    /// one which breaks off can be fetched anew. The caller gets it whole, or not at all, unless it is
    /// over [`RetryConfig::reply_limit`](crate::RetryConfig).
    Held,
    /// A stream that is passed on as it comes: it is repeated only until its first message was handed up.
    Streaming,
}
