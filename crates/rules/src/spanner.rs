//! Spanner: [`ExecuteStreamingSql`] and [`StreamingRead`] go on from the last resume token.
//!
//! Only messages up to a token are safe: the server goes on right after the message that carried it. After a
//! message without one it can't be said what to ask for, and the stream ends with its error. A value that is
//! split over messages (`chunked_value`) needs nothing: the next message has its next piece.

use bytes::Bytes;
use steadfast_core::BoxError;
use steadfast_resume::{Pass, Progress, Rest, Rule};

use crate::wire::{Fields, Unreadable, put_bytes, without};

/// Both requests have their TransactionSelector here.
const TRANSACTION: u32 = 2;

/// `google.spanner.v1.Spanner/ExecuteStreamingSql`: goes on from the last resume token.
///
/// Before the first message the same request is sent again. A statement that changes rows has a sequence number,
/// by which Spanner carries it out once in its transaction. A transaction that the request was to begin
/// (`begin`) may then have been begun in vain; it holds its locks until Spanner ends it.
///
/// Later, the transaction that the request began is named by the id that the first message told.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExecuteStreamingSql;

/// `google.spanner.v1.Spanner/StreamingRead`: goes on from the last resume token. As for
/// [`ExecuteStreamingSql`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamingRead;

impl Rule for ExecuteStreamingSql {
    fn method(&self) -> &str {
        "/google.spanner.v1.Spanner/ExecuteStreamingSql"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        // ExecuteSqlRequest.resume_token.
        Ok(Box::new(Results::begin(request, 6)?))
    }
}

impl Rule for StreamingRead {
    fn method(&self) -> &str {
        "/google.spanner.v1.Spanner/StreamingRead"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        // ReadRequest.resume_token.
        Ok(Box::new(Results::begin(request, 9)?))
    }
}

/// One stream of results.
struct Results {
    request: Bytes,
    /// The number of the request's resume_token.
    token_field: u32,
    /// Whether the request begins a transaction.
    begins: bool,
    /// The id of that transaction. Empty until it is known.
    transaction: Vec<u8>,
    /// The last token. Empty before the first.
    token: Vec<u8>,
    /// Messages since the token, or since the beginning.
    since: u64,
    /// The server said that this was the last message.
    last: bool,
}

impl Results {
    fn begin(request: &[u8], token_field: u32) -> Result<Self, Unreadable> {
        let mut begins = false;
        for field in Fields::of(request) {
            let field = field?;
            if field.number == TRANSACTION {
                for selector in Fields::of(field.bytes()?) {
                    // TransactionSelector: single_use, id or begin; the last one counts.
                    match selector?.number {
                        1 | 2 => begins = false,
                        3 => begins = true,
                        _ => {}
                    }
                }
            }
        }
        Ok(Self {
            request: Bytes::copy_from_slice(request),
            token_field,
            begins,
            transaction: Vec::new(),
            token: Vec::new(),
            since: 0,
            last: false,
        })
    }

    fn read(&mut self, message: &[u8]) -> Result<(), Unreadable> {
        let mut token: &[u8] = &[];
        for field in Fields::of(message) {
            let field = field?;
            // Of PartialResultSet.
            match field.number {
                1 if self.begins => self.metadata(field.bytes()?)?,
                4 => token = field.bytes()?,
                9 => self.last = field.varint()? != 0,
                _ => {}
            }
        }
        if token.is_empty() {
            self.since += 1;
        } else {
            self.since = 0;
            self.token.clear();
            self.token.extend_from_slice(token);
        }
        Ok(())
    }

    /// Takes the transaction's id from a ResultSetMetadata.
    fn metadata(&mut self, metadata: &[u8]) -> Result<(), Unreadable> {
        for field in Fields::of(metadata) {
            let field = field?;
            if field.number == 2 {
                for field in Fields::of(field.bytes()?) {
                    let field = field?;
                    if field.number == 1 {
                        self.transaction = field.bytes()?.to_vec();
                    }
                }
            }
        }
        Ok(())
    }

    /// The request that goes on from the token.
    fn resumed(&self) -> Result<Vec<u8>, Unreadable> {
        let mut request = if self.begins {
            let mut request = without(&self.request, &[self.token_field, TRANSACTION])?;
            let mut selector = Vec::new();
            put_bytes(&mut selector, 2, &self.transaction);
            put_bytes(&mut request, TRANSACTION, &selector);
            request
        } else {
            without(&self.request, &[self.token_field])?
        };
        put_bytes(&mut request, self.token_field, &self.token);
        Ok(request)
    }
}

impl Progress for Results {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        self.read(message)?;
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(if self.last {
            Rest::Complete
        } else if self.since > 0 {
            let since = self.since;
            Rest::cannot(format!(
                "no resume token was given for the last {since} messages"
            ))
        } else if self.token.is_empty() {
            Rest::request(self.request.clone())
        } else if self.begins && self.transaction.is_empty() {
            Rest::cannot("the server didn't name the transaction that the call began")
        } else {
            Rest::request(self.resumed()?)
        })
    }
}
