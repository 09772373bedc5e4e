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
    uri: Uri,
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
    /// The head of a request, without the header `but`, which is written anew each time: to share a value
    /// that the caller made costs an allocation.
    pub(crate) fn of(parts: &Parts, but: Option<&HeaderName>) -> Self {
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            version: parts.version,
            headers: Headers::of(&parts.headers, but),
        }
    }

    fn request(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers.to_map();
        request
    }
}

impl Headers {
    fn of(map: &HeaderMap, but: Option<&HeaderName>) -> Self {
        if map.len() > IN_PLACE {
            return Self::Many(map.clone());
        }
        let mut headers = [const { None }; IN_PLACE];
        let kept = map.iter().filter(|(name, _)| Some(*name) != but);
        for (slot, (name, value)) in headers.iter_mut().zip(kept) {
            *slot = Some((name.clone(), value.clone()));
        }
        Self::Few(headers)
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
    pub(crate) head: Head,
    pub(crate) messages: Messages,
}

/// The messages of a kept request.
#[derive(Debug)]
pub(crate) enum Messages {
    Whole(Frames),
    Upload(Returned),
}

impl Kept {
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

    /// T4: the head comes back as it was, with few headers and with many, repeated names in their order.
    #[test]
    fn the_head_comes_back() {
        for headers in [0, 1, 7, 8, 9, 30] {
            let parts = parts(headers);
            let again = Head::of(&parts, None).request(Body::empty()).into_parts().0;
            assert_eq!(again.method, parts.method);
            assert_eq!(again.uri, parts.uri);
            assert_eq!(again.version, parts.version);
            assert_eq!(again.headers, parts.headers, "{headers}");
            let but = HeaderName::from_static("x-0");
            let again = Head::of(&parts, Some(&but)).request(Body::empty());
            assert!(headers > IN_PLACE || !again.headers().contains_key(&but));
        }
    }
}
