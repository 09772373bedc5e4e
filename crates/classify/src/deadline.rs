//! The caller's deadline, as gRPC sends it: the header `grpc-timeout`, up to eight digits and a unit.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header's name.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// How long the caller wants to wait. None if it doesn't say, or not as gRPC writes it.
#[must_use]
pub fn read(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(GRPC_TIMEOUT)?)
}

/// The time that a header's value means.
#[must_use]
pub fn parse(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// The header's value for `time`, rounded down: the finest unit in which it has at most eight digits, and at
/// most 99,999,999 s.
#[must_use]
pub fn value(time: Duration) -> HeaderValue {
    let fits = |amount: u128| amount < 100_000_000;
    let (amount, unit) = if fits(time.as_micros()) {
        (time.as_micros(), 'u')
    } else if fits(time.as_millis()) {
        (time.as_millis(), 'm')
    } else {
        (u128::from(time.as_secs()).min(99_999_999), 'S')
    };
    let text = HeaderValue::try_from(format!("{amount}{unit}"));
    text.unwrap_or_else(|_| HeaderValue::from_static("0u"))
}

/// Writes how much is left into a request that is about to be sent: whoever gets it counts from then.
pub fn write(headers: &mut HeaderMap, left: Duration) {
    headers.insert(GRPC_TIMEOUT, value(left));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, HeaderValue::try_from(text).unwrap());
        read(&headers)
    }

    /// B7, M1: the caller's deadline is read as gRPC writes it; anything else is no deadline.
    #[test]
    fn reads_deadlines() {
        assert_eq!(parsed("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(parsed("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parsed("3S"), Some(Duration::from_secs(3)));
        assert_eq!(parsed("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(parsed("5u"), Some(Duration::from_micros(5)));
        assert_eq!(parsed("6n"), Some(Duration::from_nanos(6)));
        for bad in ["", "S", "1", "123456789S", "-1S", "1s", "1é", "٣S"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
        assert_eq!(read(&HeaderMap::new()), None);
    }

    /// B7, M1: what is left is written in the finest unit of at most eight digits, and read back the same.
    #[test]
    fn writes_deadlines() {
        let text = |time| value(time).to_str().unwrap().to_owned();
        assert_eq!(text(Duration::from_millis(1_500)), "1500000u");
        assert_eq!(text(Duration::from_secs(100)), "100000m");
        assert_eq!(text(Duration::from_secs(100_000_000_000)), "99999999S");
        assert_eq!(text(Duration::ZERO), "0u");
        let mut headers = HeaderMap::new();
        let left = Duration::from_micros(99_999_999);
        write(&mut headers, left);
        assert_eq!(read(&headers), Some(left));
    }
}
