//! H: unusual answers.

use super::*;

/// H: unusual answers.
pub(crate) fn unusual_answers() -> Vec<Row> {
    let headers = |fields: &[(&str, &str)], end| Step::Headers {
        status: 200,
        fields: fields
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect(),
        end,
    };
    let data = |bytes: &'static [u8]| Step::Data {
        bytes: Bytes::from_static(bytes),
        end: false,
    };
    let bytes_then_ok = |fields: &[(&str, &str)], bytes| {
        steps([headers(fields, false), data(bytes), Step::status(0, "")])
    };
    let long = "x".repeat(1024);
    let names: Vec<String> = (0..20).map(|number| format!("x-long-{number}")).collect();
    let many: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), long.as_str()))
        .collect();
    let mut rows = vec![
        row("H2", peer(Script::http(503, Some("upstream connect error"))))
            .seen(Http(503), "503, 22 B, END", "")
            .shown("Internal protocol error: received message with invalid compression flag: 117*"),
        row("H3", steps([Step::Headers { status: 503, fields: vec![("grpc-status".into(), "8".into()), ("grpc-message".into(), "slow down".into())], end: true }]))
            .seen(Status(8), "503 grpc-status 8, 0 B, END", "")
            .shown("ResourceExhausted slow down"),
        row("H4", steps([Step::trailers_only(14, "gone")]))
            .seen(Status(14), "200 grpc-status 14, 0 B, END", "")
            .shown("Unavailable gone"),
        row("H5", steps([Step::trailers_only(0, "")]))
            .seen(Status(0), "200 grpc-status 0, 0 B, END", "")
            .shown("unary Internal Missing response message.")
            .shown("stream OK"),
        no_status(row("H6", steps([headers(&[], true)])).seen(NoStatus, "200, 0 B, END", "")),
        row("H7", peer(Script::http(200, Some("<html>hello</html>"))))
            .seen(NoStatus, "200, 18 B, END", "")
            .shown("Internal protocol error: received message with invalid compression flag: 60*"),
        row("H8", peer(Script::trail(Trail::Status(99))))
            .seen(Status(2), "200, 10 B, trailers 99", "")
            .shown("Unknown"),
        row("H9", peer(Script::trail(Trail::OpenHeaders(14))))
            .seen(Status(14), "200 grpc-status 14, 0 B, PENDING", "")
            .shown("Unavailable"),
        row("H10", bytes_then_ok(&[("grpc-encoding", "zstd")], b"\x01\0\0\0\x01x"))
            .seen(Status(0), "200, 6 B, trailers 0", "")
            .shown("Unimplemented Content is compressed with `zstd` which isn't supported"),
        row("H11", bytes_then_ok(&[], b"\x01\0\0\0\x01x"))
            .seen(Status(0), "200, 6 B, trailers 0", "")
            .shown("Internal protocol error: received message with compressed-flag but no grpc-encoding was specified"),
        row("H12", steps([headers(&[], false), data(b"\0\0\x50\0\0")]))
            .seen(Dropped, "200, 5 B, PENDING", "")
            .shown("OutOfRange Error, decoded message length too large: found 5242880 bytes*"),
        row("H13", bytes_then_ok(&[], b"\0\0\0\0\x02\x0a\x05"))
            .seen(Status(0), "200, 7 B, trailers 0", "")
            .shown("Internal failed to decode Protobuf message: *"),
        row("H14", bytes_then_ok(&[], b"\x09\0\0\0\0"))
            .seen(Status(0), "200, 5 B, trailers 0", "")
            .shown("Internal protocol error: received message with invalid compression flag: 9*"),
        row("H15", steps([headers(&many, false), Step::good_message(), Step::status(0, "")]))
            .seen(Protocol, "tE > hyper(Http2) > h2[reset+library 1]", "stream error detected: unspecific protocol error detected")
            .differs(TRANSPORT, format!("Internal {H2}")),
    ];
    for (code, shown) in [
        (400, "Internal"),
        (401, "Unauthenticated"),
        (403, "PermissionDenied"),
        (404, "Unimplemented"),
        (408, "Unknown"),
        (413, "Unknown"),
        (429, "Unavailable"),
        (431, "Unknown"),
        (500, "Unknown"),
        (502, "Unavailable"),
        (503, "Unavailable"),
        (504, "Unavailable"),
    ] {
        let line: &str = format!("{code}, 0 B, END").leak();
        rows.push(
            row(format!("H1.{code}"), peer(Script::http(code, None)))
                .seen(Http(code), line, "")
                .shown(format!(
                    "{shown} grpc-status header missing, mapped from HTTP status code {code}"
                )),
        );
    }
    rows
}
