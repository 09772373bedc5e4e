//! Spanner: streams of results go on by their resume token.

use bytes::Bytes;
use prost::encoding;
use steadfast_core::BoxError;
use steadfast_resume::{Pass, Progress, Rest, Rule};

use crate::fields::fields;

/// `PartialResultSet.resume_token`.
const TOKEN: u32 = 4;

/// `PartialResultSet.last`: nothing more comes.
const LAST: u32 = 9;

/// The rule for Spanner's `ExecuteStreamingSql`.
///
/// A stream goes on after the last message, if that brought a `resume_token`; before the first message it begins
/// anew. After messages without a token it can't go on: what was delivered since would come twice. Spanner gives
/// tokens when it can, and says so itself; its emulator gives none. A message with `last` set is the end: what breaks
/// after it is no failure.
///
/// The request stays as it is but for its `resume_token`, which Spanner wants beside an unchanged statement,
/// transaction and parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecuteStreamingSql;

/// The rule for Spanner's `StreamingRead`: see [`ExecuteStreamingSql`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamingRead;

impl Rule for ExecuteStreamingSql {
    fn method(&self) -> &str {
        "/google.spanner.v1.Spanner/ExecuteStreamingSql"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        // ExecuteSqlRequest.resume_token.
        Ok(Box::new(Results::new(request, 8)?))
    }
}

impl Rule for StreamingRead {
    fn method(&self) -> &str {
        "/google.spanner.v1.Spanner/StreamingRead"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        // ReadRequest.resume_token.
        Ok(Box::new(Results::new(request, 9)?))
    }
}

/// One call.
struct Results {
    /// As it came.
    request: Bytes,
    /// The token's field in it.
    token_field: u32,
    token: Vec<u8>,
    /// Messages since the token, or since the beginning.
    since: u64,
    ended: bool,
}

impl Results {
    fn new(request: &[u8], token_field: u32) -> Result<Self, BoxError> {
        // A request that can't be read is found here, not when the stream breaks.
        for field in fields(request) {
            field?;
        }
        Ok(Self {
            request: Bytes::copy_from_slice(request),
            token_field,
            token: Vec::new(),
            since: 0,
            ended: false,
        })
    }

    fn with_token(&self) -> Result<Bytes, BoxError> {
        let mut request = Vec::with_capacity(self.request.len() + self.token.len() + 10);
        for field in fields(&self.request) {
            let field = field?;
            if field.number != self.token_field {
                request.extend_from_slice(field.raw);
            }
        }
        encoding::bytes::encode(self.token_field, &self.token, &mut request);
        Ok(request.into())
    }
}

impl Progress for Results {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        self.since += 1;
        for field in fields(message) {
            let field = field?;
            match field.number {
                TOKEN => {
                    let token = field.bytes()?;
                    if !token.is_empty() {
                        self.token.clear();
                        self.token.extend_from_slice(token);
                        self.since = 0;
                    }
                }
                LAST => self.ended = field.bool()?,
                _ => {}
            }
        }
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        if self.ended {
            return Ok(Rest::Complete);
        }
        if self.since > 0 {
            return Ok(Rest::cannot(format!(
                "no resume token was given with the last {} messages, which would come twice",
                self.since
            )));
        }
        // Without a token nothing came yet, and the caller's own one holds, if it gave one.
        match &*self.token {
            [] => Ok(Rest::request(self.request.clone())),
            _ => self.with_token().map(Rest::request),
        }
    }
}
