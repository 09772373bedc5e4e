//! The named scripts: one constructor for each fault that a client may meet.

use super::{Accept, Answer, Last, Ping, Script, Settings, Step, hostile::zeros};
use bytes::Bytes;
use std::time::Duration;

/// Where in an exchange the peer breaks the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum At {
    /// Right after accepting, before any SETTINGS.
    Accept,
    /// When the whole request has come, before any answer.
    Request,
    /// In the middle of the answer's HEADERS frame: 40 bytes announced, 5 sent.
    MidHeaders,
    /// After the answer's headers.
    Headers,
    /// After the headers and this many messages.
    Messages(usize),
}

/// What follows a GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection stays open and nothing more is said.
    KeepOpen,
    /// The requests that the GOAWAY admits are answered; the connection stays open.
    Finish,
    /// The connection is closed (FIN).
    Fin,
}

/// An answer that ends in an unusual way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trail {
    /// Trailers-only with this `grpc-status`.
    Only(u32),
    /// One message, then the end of the stream without trailers.
    None,
    /// One message, then trailers without `grpc-status`.
    NoStatus,
    /// One message, then trailers with this `grpc-status`, which may be one that does not exist.
    Status(u32),
    /// Trailers-only with a `grpc-status-details-bin` that is not base64. tonic 0.14.9's generated clients panic on it.
    BadDetails,
    /// Headers with this `grpc-status` that leave the stream open.
    OpenHeaders(u32),
}

/// How an answer ends in the middle of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    /// With END_STREAM on the DATA frame.
    EndStream,
    /// With trailers that claim success.
    StatusZero,
}

impl Script {
    /// Answers each request well: see [`Answer::good`].
    pub fn good() -> Self {
        Self::always(Answer::good())
    }

    /// Answers `answers` requests of the connection well; then it reads, but never writes again.
    pub fn deaf(answers: u64) -> Self {
        Self::new(move |request| {
            if request.index < answers {
                Answer::good()
            } else {
                Answer::silence()
            }
        })
        .deaf_after(answers)
    }

    /// Acknowledges PINGs but never answers a request.
    pub fn ping_only() -> Self {
        Self::always(Answer::silence())
    }

    /// Sends headers and `messages` messages, then falls silent.
    pub fn head_stop(messages: usize) -> Self {
        Self::always(Answer::steps(opening(messages)))
    }

    /// Closes the connection (FIN) at this point of each exchange.
    pub fn fin(at: At) -> Self {
        Self::broken(at, Accept::Fin, Step::Fin)
    }

    /// Resets the TCP connection at this point of each exchange.
    pub fn tcp_reset(at: At) -> Self {
        Self::broken(at, Accept::TcpReset, Step::TcpReset)
    }

    fn broken(at: At, accept: Accept, end: Step) -> Self {
        let mut steps = match at {
            At::Accept => return Self::always(Answer::silence()).accept(accept),
            At::Request => vec![Step::AwaitRequest],
            At::MidHeaders => {
                // A frame header for 40 bytes of HEADERS on stream 1, END_HEADERS set, and five of them.
                vec![
                    Step::AwaitRequest,
                    Step::Bytes(Bytes::from_static(
                        b"\0\0\x28\x01\x04\0\0\0\x01\x88\0\0\0\0",
                    )),
                ]
            }
            At::Headers => opening(0),
            At::Messages(messages) => opening(messages),
        };
        steps.push(end);
        Self::always(Answer::steps(steps))
    }

    /// Sends GOAWAY with this code when the connection's first request has come.
    pub fn goaway(code: u32, last: Last, then: Then) -> Self {
        Self::new(move |request| {
            let rest = if then == Then::Finish {
                Answer::good()
            } else {
                Answer::silence()
            };
            if request.index > 0 {
                return rest;
            }
            let mut steps = vec![Step::AwaitRequest, Step::goaway(code, last)];
            steps.extend(rest.steps);
            if then == Then::Fin {
                steps.push(Step::Fin);
            }
            Answer::steps(steps)
        })
    }

    /// Resets each stream with this code, before any answer.
    pub fn rst(code: u32) -> Self {
        Self::always(Answer::steps([Step::AwaitRequest, Step::Rst(code)]))
    }

    /// Resets each stream with this code, after headers and one message.
    pub fn rst_after_headers(code: u32) -> Self {
        let mut steps = opening(1);
        steps.push(Step::Rst(code));
        Self::always(Answer::steps(steps))
    }

    /// Announces SETTINGS_MAX_CONCURRENT_STREAMS = `streams` and holds each request until it is released; then answers well.
    pub fn max_streams(streams: u32) -> Self {
        Self::always(Answer::good().held()).settings(Settings {
            max_concurrent_streams: Some(streams),
            ..Settings::default()
        })
    }

    /// Answers the first three requests of the connection with a message of 3 MiB, later ones with one of 5 B.
    pub fn flow() -> Self {
        Self::new(|request| {
            if request.index < 3 {
                Answer::message(zeros(3 << 20))
            } else {
                Answer::good()
            }
        })
    }

    /// Says nothing until the client resets the stream; `delay` after that it sends headers, a message and trailers on the dead
    /// stream.
    pub fn late(delay: Duration) -> Self {
        let rest = [
            Step::Wait(delay),
            Step::headers(),
            Step::good_message(),
            Step::status(0, ""),
        ];
        Self::always(Answer::silence().after_reset(rest))
    }

    /// Answers well, but punishes PINGs: see [`Ping::Strict`].
    pub fn strict_ping(min_gap: Duration, without_streams: bool) -> Self {
        Self::good().ping(Ping::Strict {
            min_gap,
            without_streams,
        })
    }

    /// Answers with a bare HTTP status and `content-type: text/plain`, with or without a text body.
    pub fn http(status: u16, text: Option<&'static str>) -> Self {
        let fields = vec![("content-type".to_owned(), "text/plain".to_owned())];
        let mut steps = vec![
            Step::AwaitRequest,
            Step::Headers {
                status,
                fields,
                end: text.is_none(),
            },
        ];
        steps.extend(text.map(|text| Step::Data {
            bytes: Bytes::from_static(text.as_bytes()),
            end: true,
        }));
        Self::always(Answer::steps(steps))
    }

    /// Ends each answer in an unusual way.
    pub fn trail(trail: Trail) -> Self {
        let headers = |fields: &[(&str, &str)], end| {
            let fields = fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            vec![
                Step::AwaitRequest,
                Step::Headers {
                    status: 200,
                    fields,
                    end,
                },
            ]
        };
        let steps = match trail {
            Trail::Only(code) => vec![Step::AwaitRequest, Step::trailers_only(code, "")],
            Trail::None => [
                opening(1),
                vec![Step::Data {
                    bytes: Bytes::new(),
                    end: true,
                }],
            ]
            .concat(),
            Trail::NoStatus => [
                opening(1),
                vec![Step::Trailers(vec![("x-end".to_owned(), "1".to_owned())])],
            ]
            .concat(),
            Trail::Status(code) => [opening(1), vec![Step::status(code, "")]].concat(),
            Trail::BadDetails => headers(
                &[("grpc-status", "13"), ("grpc-status-details-bin", "%%%")],
                true,
            ),
            Trail::OpenHeaders(code) => headers(&[("grpc-status", &code.to_string())], false),
        };
        Self::always(Answer::steps(steps))
    }

    /// Sends six of the ten bytes of a message, then ends the stream.
    pub fn truncated(end: Truncated) -> Self {
        let half = Bytes::from_static(b"\0\0\0\0\x05\x0a");
        let mut steps = opening(0);
        steps.push(Step::Data {
            bytes: half,
            end: end == Truncated::EndStream,
        });
        if end == Truncated::StatusZero {
            steps.push(Step::status(0, ""));
        }
        Self::always(Answer::steps(steps))
    }

    /// Sends `messages` messages with this much silence before each, then `grpc-status: 0`.
    pub fn gap(gap: Duration, messages: usize) -> Self {
        let mut steps = opening(0);
        for _ in 0..messages {
            steps.extend([Step::Wait(gap), Step::good_message()]);
        }
        steps.push(Step::status(0, ""));
        Self::always(Answer::steps(steps))
    }

    /// Answers like an HTTP/1.1 server that does not know HTTP/2.
    pub fn http1() -> Self {
        let text = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        Self::good().accept(Accept::Text(text.to_owned()))
    }
}

/// The whole request, headers, and this many messages.
fn opening(messages: usize) -> Vec<Step> {
    let mut steps = vec![Step::AwaitRequest, Step::headers()];
    steps.extend(std::iter::repeat_n(Step::good_message(), messages));
    steps
}
