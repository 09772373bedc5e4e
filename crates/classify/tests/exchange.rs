//! The rules for heads, trailers and ends of bodies.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, response::Parts};
use proptest::prelude::*;
use steadfast_classify::Exchange;
use steadfast_core::{BoxError, End, Local, LocalKind, Outcome};

const MESSAGE: &[u8] = b"\0\0\0\0\x02ab";
const HALF: &[u8] = b"\0\0\0\0\x02a";

fn head(status: u16, fields: &[(&'static str, &'static str)]) -> Parts {
    let mut response = http::Response::new(());
    *response.status_mut() = status.try_into().unwrap();
    for (name, value) in fields {
        response
            .headers_mut()
            .append(*name, HeaderValue::from_static(value));
    }
    response.into_parts().0
}

fn grpc() -> Parts {
    head(200, &[("content-type", "application/grpc+proto")])
}

fn trailers(status: &'static str) -> HeaderMap {
    head(200, &[("grpc-status", status)]).headers
}

/// An exchange with this head and these frames.
fn begun(head: &Parts, frames: &[&'static [u8]]) -> Exchange {
    let mut exchange = Exchange::new();
    exchange.head(head);
    for frame in frames {
        exchange.data(&Bytes::from_static(frame));
    }
    exchange
}

/// P1: what is known at the head is told at the head, even when the stream is left open.
#[test]
fn early_verdicts() {
    let rows = [
        (head(200, &[]), None),
        (grpc(), None),
        (head(200, &[("grpc-status", "0")]), None),
        (
            head(200, &[("grpc-status", "14")]),
            Some(Outcome::Status(14)),
        ),
        (head(503, &[("grpc-status", "8")]), Some(Outcome::Status(8))),
        (head(503, &[("grpc-status", "0")]), None),
        (head(503, &[]), Some(Outcome::Http(503))),
        (head(204, &[]), Some(Outcome::Http(204))),
        (
            head(404, &[("content-type", "application/grpc")]),
            Some(Outcome::Http(404)),
        ),
        (
            head(200, &[("grpc-status", "x"), ("grpc-status", "0")]),
            Some(Outcome::Status(2)),
        ),
    ];
    for (head, verdict) in rows {
        assert_eq!(Exchange::new().head(&head), verdict, "{head:?}");
    }
}

/// P1: trailers, their absence, and a status 0 inside a message.
#[test]
fn ends() {
    let ok = trailers("0");
    let bye = trailers("14");
    let none = HeaderMap::new();
    let rows: Vec<(Exchange, End<'_>, Outcome)> = vec![
        (
            begun(&grpc(), &[MESSAGE]),
            End::Trailers(&ok),
            Outcome::Status(0),
        ),
        (begun(&grpc(), &[]), End::Trailers(&ok), Outcome::Status(0)),
        (
            begun(&grpc(), &[MESSAGE]),
            End::Trailers(&bye),
            Outcome::Status(14),
        ),
        (
            begun(&grpc(), &[HALF]),
            End::Trailers(&bye),
            Outcome::Status(14),
        ),
        (
            begun(&grpc(), &[HALF]),
            End::Trailers(&ok),
            Outcome::CutShort,
        ),
        (
            begun(&grpc(), &[HALF, b"b"]),
            End::Trailers(&ok),
            Outcome::Status(0),
        ),
        (
            begun(&grpc(), &[MESSAGE, b"\0"]),
            End::Trailers(&ok),
            Outcome::CutShort,
        ),
        (
            begun(&grpc(), &[MESSAGE]),
            End::Trailers(&none),
            Outcome::NoStatus,
        ),
        (begun(&grpc(), &[MESSAGE]), End::Eos, Outcome::NoStatus),
        (begun(&grpc(), &[HALF]), End::Eos, Outcome::NoStatus),
        (begun(&grpc(), &[]), End::Dropped, Outcome::Dropped),
        (Exchange::new(), End::Dropped, Outcome::Dropped),
        // Another body than gRPC's has no messages to be inside of.
        (
            begun(&head(200, &[("content-type", "text/html")]), &[HALF]),
            End::Trailers(&ok),
            Outcome::Status(0),
        ),
        (
            begun(&head(200, &[("content-type", "Application/gRPC")]), &[HALF]),
            End::Trailers(&ok),
            Outcome::CutShort,
        ),
        (
            begun(&head(200, &[]), &[b"hello"]),
            End::Eos,
            Outcome::NoStatus,
        ),
        // A status in the headers.
        (
            begun(&head(200, &[("grpc-status", "14")]), &[]),
            End::Eos,
            Outcome::Status(14),
        ),
        (
            begun(&head(200, &[("grpc-status", "14")]), &[]),
            End::Dropped,
            Outcome::Status(14),
        ),
        (
            begun(&head(200, &[("grpc-status", "14")]), &[]),
            End::Trailers(&ok),
            Outcome::Status(14),
        ),
        (
            begun(&head(200, &[("grpc-status", "0")]), &[]),
            End::Eos,
            Outcome::Status(0),
        ),
        (
            begun(&head(200, &[("grpc-status", "0")]), &[]),
            End::Dropped,
            Outcome::Dropped,
        ),
        // A bare HTTP status, with a body that means nothing.
        (
            begun(&head(503, &[]), &[b"upstream connect error"]),
            End::Eos,
            Outcome::Http(503),
        ),
        (
            begun(&head(503, &[]), &[]),
            End::Dropped,
            Outcome::Http(503),
        ),
        (
            begun(&head(503, &[]), &[]),
            End::Trailers(&none),
            Outcome::Http(503),
        ),
        (
            begun(&head(503, &[]), &[]),
            End::Trailers(&bye),
            Outcome::Status(14),
        ),
    ];
    for (exchange, end, outcome) in rows {
        assert_eq!(exchange.end(&end), outcome, "{exchange:?} {end:?}");
    }
}

/// P1: a grpc-status that isn't one of the codes is UNKNOWN, as tonic has it.
#[test]
fn bad_codes() {
    for (text, code) in [
        ("0", 0),
        ("2", 2),
        ("16", 16),
        ("17", 2),
        ("99", 2),
        ("00", 2),
        ("", 2),
        ("-1", 2),
    ] {
        let map = trailers(text);
        let outcome = begun(&grpc(), &[]).end(&End::Trailers(&map));
        assert_eq!(outcome, Outcome::Status(code), "{text:?}");
    }
    let mut map = HeaderMap::new();
    map.insert("grpc-status", HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(
        begun(&grpc(), &[]).end(&End::Trailers(&map)),
        Outcome::Status(2)
    );
}

/// P1, P2: an error is one of the call before the head and one of the body after it; a verdict that
/// was given stays.
#[test]
fn errors_by_phase() {
    let lost: BoxError = std::io::Error::from(std::io::ErrorKind::BrokenPipe).into();
    let local: BoxError = Local::new(LocalKind::Quarantine, "silent").into();
    let lost = || End::Failed(&*lost);
    let local = || End::Failed(&*local);
    let quarantine = Outcome::Local(LocalKind::Quarantine);
    assert_eq!(Exchange::new().end(&lost()), Outcome::ConnectionLost);
    assert_eq!(
        begun(&grpc(), &[MESSAGE]).end(&lost()),
        Outcome::ConnectionLost
    );
    assert_eq!(
        begun(&head(200, &[("grpc-status", "0")]), &[]).end(&lost()),
        Outcome::ConnectionLost
    );
    assert_eq!(Exchange::new().end(&local()), quarantine);
    assert_eq!(begun(&grpc(), &[MESSAGE]).end(&local()), quarantine);
    let failed = begun(&head(200, &[("grpc-status", "14")]), &[]);
    assert_eq!(failed.end(&local()), Outcome::Status(14));
}

proptest! {
    /// X6: no bytes, no status and no end make it panic.
    #[test]
    fn hostile(
        status in 100u16..1000,
        code in prop::collection::vec(0x20u8..0x7f, 0..4),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..10),
        end in 0..3,
    ) {
        let mut parts = head(status, &[("content-type", "application/grpc")]);
        let code = HeaderValue::from_bytes(&code).unwrap();
        if status % 2 == 0 {
            parts.headers.insert("grpc-status", code.clone());
        }
        let mut exchange = Exchange::new();
        exchange.head(&parts);
        frames.into_iter().for_each(|frame| exchange.data(&frame.into()));
        let mut map = HeaderMap::new();
        map.insert("grpc-status", code);
        let _ = exchange.end(&match end {
            0 => End::Eos,
            1 => End::Dropped,
            _ => End::Trailers(&map),
        });
    }
}
