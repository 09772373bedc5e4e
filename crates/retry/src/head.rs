//! What is kept of a request to send it again.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, request::Parts};
use tonic::body::Body;

use crate::{
    frames::Frames,
    request::{Returned, Sending, Upload},
};

/// Headers that are kept in place. A gRPC call has three or four and the caller's own; cloning a
/// `HeaderMap` costs two allocations, these none.
const IN_PLACE: usize = 8;

/// A request's head, without its extensions: those come back through the `Attempt`.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    method: Method,
    // None until it is filled.
    uri: Option<Uri>,
    version: Version,
    headers: Headers,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and is not to cost an allocation"
)]
enum Headers {
    Few([Option<(HeaderName, HeaderValue)>; IN_PLACE]),
    Many(HeaderMap),
}

impl Head {
    /// A head to be filled where it stays: it is large, and every move of it is a copy.
    const fn empty() -> Self {
        Self {
            method: Method::POST,
            uri: None,
            version: Version::HTTP_2,
            headers: Headers::Few([const { None }; IN_PLACE]),
        }
    }

    /// The head of a request, without the header `but`, which is written anew each time: to share a value
    /// that the caller made costs an allocation.
    fn fill(&mut self, parts: &Parts, but: Option<&HeaderName>) {
        self.method = parts.method.clone();
        self.uri = Some(parts.uri.clone());
        self.version = parts.version;
        self.headers.fill(&parts.headers, but);
    }

    fn request(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone().unwrap_or_default();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers.to_map();
        request
    }
}

impl Headers {
    fn fill(&mut self, map: &HeaderMap, but: Option<&HeaderName>) {
        match self {
            Self::Few(headers) if map.len() <= IN_PLACE => {
                let kept = map.iter().filter(|(name, _)| Some(*name) != but);
                for (slot, (name, value)) in headers.iter_mut().zip(kept) {
                    *slot = Some((name.clone(), value.clone()));
                }
            }
            _ => *self = Self::Many(map.clone()),
        }
    }

    fn to_map(&self) -> HeaderMap {
        match self {
            Self::Few(headers) => {
                let mut map = HeaderMap::with_capacity(IN_PLACE);
                for (name, value) in headers.iter().flatten() {
                    map.append(name.clone(), value.clone());
                }
                map
            }
            Self::Many(map) => map.clone(),
        }
    }
}

/// A request that can be sent again.
#[derive(Debug)]
pub(crate) struct Kept {
    head: Head,
    messages: Messages,
}

/// The messages of a kept request.
#[derive(Debug)]
pub(crate) enum Messages {
    Whole(Frames),
    Upload(Returned),
}

impl Kept {
    /// Keeps a request in `place`.
    pub(crate) fn keep(
        place: &mut Option<Self>,
        parts: &Parts,
        but: Option<&HeaderName>,
        messages: Messages,
    ) {
        let kept = place.insert(Self {
            head: Head::empty(),
            messages,
        });
        kept.head.fill(parts, but);
    }

    /// Whether it can be sent again now.
    pub(crate) fn is_there(&self) -> bool {
        match &self.messages {
            Messages::Whole(_) => true,
            Messages::Upload(returned) => returned.is_there(),
        }
    }

    /// The request once more. None if it is there no longer.
    pub(crate) fn again(&self) -> Option<Request<Body>> {
        let body = match &self.messages {
            Messages::Whole(frames) => Sending::whole(frames.clone()).into_body(),
            Messages::Upload(returned) => {
                Body::new(Upload::new(returned.take()?, returned.clone()))
            }
        };
        Some(self.head.request(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(headers: usize) -> Parts {
        let mut request = Request::post("http://host/a.B/C").version(Version::HTTP_2);
        for number in 0..headers {
            // Two of each name.
            request = request.header(format!("x-{}", number / 2), number.to_string());
        }
        request.body(()).unwrap().into_parts().0
    }

    fn kept(parts: &Parts, but: Option<&HeaderName>) -> Head {
        let mut head = Head::empty();
        head.fill(parts, but);
        head
    }

    /// T4: the head comes back as it was, with few headers and with many, repeated names in their order.
    #[test]
    fn the_head_comes_back() {
        for headers in [0, 1, 7, 8, 9, 30] {
            let parts = parts(headers);
            let again = kept(&parts, None).request(Body::empty()).into_parts().0;
            assert_eq!(again.method, parts.method);
            assert_eq!(again.uri, parts.uri);
            assert_eq!(again.version, parts.version);
            assert_eq!(again.headers, parts.headers, "{headers}");
            let but = HeaderName::from_static("x-0");
            let again = kept(&parts, Some(&but)).request(Body::empty());
            assert!(headers > IN_PLACE || !again.headers().contains_key(&but));
        }
    }
}
