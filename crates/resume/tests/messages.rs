//! The message reader: any messages, in any frames.

use std::{error::Error, io::Write};

use bytes::Bytes;
use http::HeaderMap;
use proptest::{collection::vec, prelude::*};
use steadfast_core::BoxError;
use steadfast_resume::{MessageError, MessageReader, Pass};

const LIMIT: usize = 100;

fn head(encoding: &'static str) -> HeaderMap {
    let mut head = HeaderMap::new();
    head.insert("grpc-encoding", encoding.parse().unwrap());
    head
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], message].concat()
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(message).unwrap();
    packer.finish().unwrap()
}

fn deflate(message: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(message).unwrap();
    packer.finish().unwrap()
}

/// Reads these frames; what was seen, and what goes on.
fn read(
    reader: &mut MessageReader,
    frames: impl IntoIterator<Item = Vec<u8>>,
) -> (Vec<Vec<u8>>, Vec<Bytes>, Result<(), MessageError>) {
    let (mut seen, mut passed) = (Vec::new(), Vec::new());
    for frame in frames {
        let mut see = |message: &[u8]| {
            seen.push(message.to_vec());
            Ok(Pass::AsIs)
        };
        let read = reader.push(frame.into(), &mut see);
        passed.extend(std::iter::from_fn(|| reader.pop()));
        if read.is_err() {
            return (seen, passed, read);
        }
    }
    (seen, passed, Ok(()))
}

fn chop(bytes: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (frame, left) = rest.split_at(rest.len().min(*size));
        frames.push(frame.to_vec());
        rest = left;
        if rest.is_empty() {
            return frames;
        }
    }
    frames
}

proptest! {
    /// R4, R7: each message is seen once, in order, and the bytes go on as they came, at each frame those of the messages
    /// that are whole; what is held is never more than one message.
    #[test]
    fn any_frames(
        messages in vec(vec(any::<u8>(), 0..=LIMIT), 0..20),
        mut sizes in vec(0..40_usize, 1..20),
    ) {
        sizes.push(1);
        let bytes: Vec<u8> = messages.iter().flat_map(|message| framed(0, message)).collect();
        let mut reader = MessageReader::new(&HeaderMap::new(), LIMIT);
        let (mut came, mut gone, mut seen) = (0, Vec::new(), Vec::new());
        for frame in chop(&bytes, &sizes) {
            came += frame.len();
            let (saw, passed, result) = read(&mut reader, [frame]);
            prop_assert!(result.is_ok());
            seen.extend(saw);
            gone.extend(passed.concat());
            prop_assert_eq!(gone.len() + reader.held(), came);
            prop_assert!(reader.held() < LIMIT + 5);
            let whole: usize = messages[..seen.len()].iter().map(|message| message.len() + 5).sum();
            prop_assert_eq!(gone.len(), whole);
        }
        prop_assert_eq!(seen, messages);
        prop_assert_eq!(gone, bytes);
    }

    /// R8: any bytes are read, or are an error; the reader holds no more than it may.
    #[test]
    fn any_bytes(frames in vec(vec(any::<u8>(), 0..300), 0..10), encoding in 0..5_usize) {
        let encoding = ["identity", "gzip", "deflate", "zstd", "br"][encoding];
        let mut reader = MessageReader::new(&head(encoding), LIMIT);
        let (seen, _, result) = read(&mut reader, frames);
        prop_assert!(seen.iter().all(|message| message.len() <= LIMIT));
        prop_assert!(result.is_err() || reader.held() < LIMIT + 5);
    }
}

/// R7: compressed messages are seen unpacked and go on as they came, between others that aren't compressed.
#[test]
fn compressed_messages() {
    type Pack = fn(&[u8]) -> Vec<u8>;
    let packers: [(&str, Pack); 3] = [
        ("gzip", gzip),
        ("deflate", deflate),
        ("zstd", |message| zstd::bulk::compress(message, 1).unwrap()),
    ];
    for (encoding, pack) in packers {
        let messages = [&b""[..], b"abc", &[7; LIMIT]];
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(framed(1, &pack(message)));
            bytes.extend(framed(0, message));
        }
        for size in [1, 3, bytes.len()] {
            let mut reader = MessageReader::new(&head(encoding), LIMIT);
            let (seen, passed, result) = read(&mut reader, chop(&bytes, &[size]));
            result.unwrap();
            let twice: Vec<_> = messages
                .iter()
                .flat_map(|it| [it.to_vec(), it.to_vec()])
                .collect();
            assert_eq!(seen, twice, "{encoding}");
            assert_eq!(passed.concat(), bytes, "{encoding}");
        }
    }
}

/// R7, R8: what can't be read is an error that says what: after the messages before it, and without unpacking it all.
#[test]
fn what_cannot_be_read() {
    let bomb = gzip(&vec![0; 10 << 20]);
    assert!(bomb.len() < 100_000);
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("identity", framed(3, b""), "the flag 3"),
        ("identity", framed(1, b"abc"), "names no compression"),
        ("br", framed(1, b"abc"), "\"br\""),
        ("gzip", framed(1, b"abc"), "can't be unpacked"),
        (
            "gzip",
            framed(1, &gzip(&[0; LIMIT + 1])),
            "a message of 101 bytes",
        ),
        (
            "zstd",
            framed(1, &zstd::bulk::compress(&[0; 5_000], 1).unwrap()),
            "101 bytes",
        ),
        (
            "identity",
            framed(0, &[0; LIMIT + 1]),
            "a message of 101 bytes",
        ),
    ];
    for (encoding, bad, says) in cases {
        let bytes = [framed(0, b"good"), bad].concat();
        for size in [1, bytes.len()] {
            let mut reader = MessageReader::new(&head(encoding), LIMIT);
            let (seen, passed, result) = read(&mut reader, chop(&bytes, &[size]));
            let text = result.unwrap_err().to_string();
            assert!(text.contains(says), "{encoding}: {text}");
            assert_eq!(seen, [b"good"]);
            assert_eq!(passed.concat(), framed(0, b"good"));
        }
    }
    let mut reader = MessageReader::new(&head("gzip"), LIMIT);
    let (_, _, result) = read(&mut reader, [framed(1, b"abc")]);
    assert!(result.unwrap_err().source().is_some());
    let mut reader = MessageReader::new(&head("gzip"), LIMIT);
    let refused = reader.push(framed(0, b"abc").into(), &mut |_| Err("no".into()));
    assert_eq!(refused.unwrap_err().source().unwrap().to_string(), "no");
    let mut reader = MessageReader::new(&head("gzip"), 100_000);
    let (_, _, result) = read(&mut reader, [framed(1, &bomb)]);
    let MessageError::TooLarge { length, limit } = result.unwrap_err() else {
        panic!("another error")
    };
    assert_eq!((length, limit), (100_001, 100_000));
}

/// R1: what is seen may be replaced or left out, in the middle of a frame as over several.
#[test]
fn replaced_and_left_out() {
    let bytes: Vec<u8> = (0..6).flat_map(|number| framed(0, &[number])).collect();
    let expected = [
        framed(0, &[0]),
        framed(0, b"two"),
        framed(0, &[3]),
        framed(0, b"five"),
    ];
    for size in [1, 4, 9, bytes.len()] {
        let mut reader = MessageReader::new(&HeaderMap::new(), LIMIT);
        assert!(reader.is_empty());
        let mut see = |message: &[u8]| -> Result<Pass, BoxError> {
            Ok(match message {
                [2] => Pass::Instead("two".into()),
                [5] => Pass::Instead("five".into()),
                [1 | 4] => Pass::Withhold,
                _ => Pass::AsIs,
            })
        };
        let mut passed = Vec::new();
        for frame in chop(&bytes, &[size]) {
            reader.push(frame.into(), &mut see).unwrap();
            let waits = !reader.is_empty();
            let before = passed.len();
            passed.extend(std::iter::from_fn(|| reader.pop()));
            assert_eq!(passed.len() > before, waits);
        }
        assert_eq!(passed.concat(), expected.concat(), "{size}");
    }
}

/// R7: what goes on in one piece is at most 8 KiB, and ends with a message; unless a message is larger.
#[test]
fn pieces_are_small() {
    let sizes = [3_000, 3_000, 3_000, 20_000, 10, 10];
    let bytes: Vec<u8> = sizes
        .iter()
        .flat_map(|size| framed(0, &vec![7; *size]))
        .collect();
    let mut reader = MessageReader::new(&HeaderMap::new(), 1 << 20);
    let (seen, passed, result) = read(&mut reader, [bytes.clone()]);
    result.unwrap();
    assert_eq!(seen.len(), sizes.len());
    let pieces: Vec<_> = passed.iter().map(Bytes::len).collect();
    assert_eq!(pieces, [6_010, 3_005, 20_005, 30]);
    assert_eq!(passed.concat(), bytes);
}
