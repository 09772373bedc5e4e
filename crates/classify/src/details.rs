//! What a failed reply says beside its status: pushback, and `grpc-status-details-bin`.

use std::time::Duration;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, HeaderName, HeaderValue};

const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The base64 that tonic decodes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A server that wants its clients to wait longer than this doesn't want them to try again.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// What a server says about trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// After this time, and not before.
    After(Duration),
    /// Not at all.
    Never,
}

/// Takes a `grpc-status-details-bin` out that is no base64: tonic 0.14.9 panics in its caller on one.
#[inline]
pub fn clean(headers: &mut HeaderMap) {
    if let Some(details) = lookup(headers, &DETAILS)
        && BASE64.decode(details.as_bytes()).is_err()
    {
        headers.remove(DETAILS);
    }
}

/// A header's first value. Few headers are looked through faster than a name is hashed.
#[inline]
#[must_use]
pub fn lookup<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    if headers.len() > 8 {
        return headers.get(name);
    }
    let mut all = headers.iter();
    all.find_map(|(one, value)| (one == name).then_some(value))
}

/// What the server said about trying again, in the headers or trailers that carry the status: by
/// `grpc-retry-pushback-ms`, where what is no number of milliseconds means not to (gRFC A6), or else by
/// google.rpc's `RetryInfo`.
#[must_use]
pub fn pushback(headers: &HeaderMap) -> Option<Pushback> {
    let time = match headers.get(PUSHBACK) {
        Some(text) => {
            let millis = text.to_str().ok().and_then(|text| text.parse().ok());
            millis.map(Duration::from_millis)
        }
        None => Some(retry_delay(headers)?),
    };
    Some(match time {
        Some(time) if time <= LONGEST => Pushback::After(time),
        _ => Pushback::Never,
    })
}

/// google.rpc.Status, as far as it is read here.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The delay of the first `RetryInfo`. What can't be read says nothing.
fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    use prost::Message;
    let details = BASE64.decode(headers.get(DETAILS)?.as_bytes()).ok()?;
    let status = RpcStatus::decode(&*details).ok()?;
    let info = |any: &AnyMessage| any.type_url.ends_with("/google.rpc.RetryInfo");
    let info = status.details.into_iter().find(info)?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    let (seconds, nanos) = (delay.seconds.try_into().ok()?, delay.nanos.try_into().ok()?);
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos))
}
