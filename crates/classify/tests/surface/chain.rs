//! The chain of sources as `docs/failures.md` writes it.

use std::{error::Error, io};

type Link = dyn Error + 'static;

/// `tE > hyper(Io) > io(BrokenPipe)`.
pub(crate) fn written(error: &Link) -> String {
    let links = std::iter::successors(Some(error), |link| (**link).source());
    links.map(link).collect::<Vec<_>>().join(" > ")
}

fn link(error: &Link) -> String {
    if error.is::<tonic::transport::Error>() {
        "tE".to_owned()
    } else if error.is::<tonic::ConnectError>() {
        "ConnectError".to_owned()
    } else if error.is::<tonic::TimeoutExpired>() {
        "TimeoutExpired".to_owned()
    } else if error.is::<tonic::Status>() {
        "Status".to_owned()
    } else if error.is::<tower::buffer::error::Closed>() {
        "Closed".to_owned()
    } else if let Some(error) = error.downcast_ref::<hyper::Error>() {
        hyper(error)
    } else if let Some(error) = error.downcast_ref::<h2::Error>() {
        h2(error)
    } else if let Some(error) = error.downcast_ref::<io::Error>() {
        format!("io({:?})", error.kind())
    } else {
        let text = error.to_string();
        if text.is_empty() {
            format!("{error:?}")
        } else {
            text
        }
    }
}

fn hyper(error: &hyper::Error) -> String {
    let debug = format!("{error:?}");
    let inner = debug.trim_start_matches("hyper::Error(");
    let kind = match inner.split_once(", ") {
        Some((kind, _)) => kind,
        None => inner.trim_end_matches(')'),
    };
    let flags = [
        (error.is_canceled(), "is_canceled"),
        (error.is_closed(), "is_closed"),
        (error.is_timeout(), "is_timeout"),
        (error.is_user(), "is_user"),
    ];
    let mut text = format!("hyper({kind}");
    for (_, name) in flags.iter().filter(|(is, _)| *is) {
        text += ", ";
        text += name;
    }
    text + ")"
}

fn h2(error: &h2::Error) -> String {
    let flags = [
        (error.is_reset(), "reset"),
        (error.is_go_away(), "go_away"),
        (error.is_remote(), "remote"),
        (error.is_library(), "library"),
    ];
    let flags: Vec<_> = flags
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, n)| *n)
        .collect();
    match (error.reason(), error.get_io()) {
        (Some(reason), _) => format!("h2[{} {}]", flags.join("+"), u32::from(reason)),
        (None, Some(io)) => format!("h2[io {:?}]", io.kind()),
        (None, None) => format!("h2[{}]", flags.join("+")),
    }
}

/// Whether the text fits one of the patterns between `|`; a `*` stands for any text.
pub(crate) fn fits(patterns: &str, text: &str) -> bool {
    patterns.split('|').any(|pattern| fits_one(pattern, text))
}

fn fits_one(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.split_once(middle) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |end| rest.ends_with(end))
}
