//! One exchange, from its call to the end of its body: what became of it.
//!
//! It decides as early as it can: a status in the headers and a bare HTTP status are known when the
//! head comes, even if the server never ends the stream. It keeps a count of bytes and no data.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE, response::Parts};
use steadfast_core::{End, Outcome};

use crate::{body_error, call_error, framing::Framing};

/// Classifies one exchange. Feed it from an [`Observe`](steadfast_core::Observe); it is small, is
/// `Copy`, and never allocates, errors apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    head: Head,
    framing: Option<Framing>,
}

/// What the head told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Head {
    /// It hasn't come.
    #[default]
    Awaited,
    /// Nothing: the status is to come in the trailers.
    Open,
    /// grpc-status 0 in the headers: no trailers need to follow.
    Ok,
    /// A grpc-status other than 0 in the headers: it stands.
    Failed(u16),
    /// A bare HTTP status other than 200.
    Http(u16),
}

impl Exchange {
    /// An exchange whose request is about to be sent.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The response's head came. Says the outcome if that is a failure and known now: a grpc-status
    /// other than 0 in the headers, or an HTTP status other than 200 without one.
    pub fn head(&mut self, head: &Parts) -> Option<Outcome> {
        self.head = match grpc_status(&head.headers) {
            Some(0) => Head::Ok,
            Some(code) => Head::Failed(code),
            None if head.status != StatusCode::OK => Head::Http(head.status.as_u16()),
            None => Head::Open,
        };
        let framed = head.status == StatusCode::OK && is_grpc(&head.headers);
        self.framing = framed.then(Framing::default);
        self.early()
    }

    /// A frame of data came.
    pub fn data(&mut self, data: &Bytes) {
        if let Some(framing) = &mut self.framing {
            framing.data(data);
        }
    }

    /// The exchange is over: what became of it. A failure that [`Exchange::head`] told stays, but for
    /// a bare HTTP status whose trailers bring a grpc-status after all.
    #[must_use]
    pub fn end(&self, end: &End<'_>) -> Outcome {
        if let (End::Trailers(trailers), Head::Open | Head::Http(_)) = (end, self.head)
            && let Some(code) = grpc_status(trailers)
        {
            return self.closing(code);
        }
        if let Some(outcome) = self.early() {
            return outcome;
        }
        match (end, self.head) {
            (End::Failed(error), Head::Awaited) => call_error(*error),
            (End::Failed(error), _) => body_error(*error),
            (End::Dropped, _) => Outcome::Dropped,
            (End::Eos | End::Trailers(_), Head::Ok) => self.closing(0),
            (End::Eos | End::Trailers(_), _) => Outcome::NoStatus,
        }
    }

    fn early(&self) -> Option<Outcome> {
        match self.head {
            Head::Failed(code) => Some(Outcome::Status(code)),
            Head::Http(code) => Some(Outcome::Http(code)),
            Head::Awaited | Head::Open | Head::Ok => None,
        }
    }

    /// A status at the end. OK after half a message is no success: the rest of it is lost.
    fn closing(&self, code: u16) -> Outcome {
        let cut = self
            .framing
            .is_some_and(|framing| framing.inside_a_message());
        if code == 0 && cut {
            Outcome::CutShort
        } else {
            Outcome::Status(code)
        }
    }
}

/// The grpc-status among these, read as tonic reads it: what isn't one of the 17 codes is UNKNOWN (2).
fn grpc_status(headers: &HeaderMap) -> Option<u16> {
    headers
        .get("grpc-status")
        .map(|text| tonic::Code::from_bytes(text.as_bytes()) as u16)
}

fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes();
        kind.len() >= GRPC.len() && kind[..GRPC.len()].eq_ignore_ascii_case(GRPC)
    })
}
