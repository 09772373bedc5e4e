//! The faults, in words and in what they need.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::load::arrivals::LAZY_ROWS;
use crate::places::Break;

/// What goes wrong a fifth into the load, and stays wrong to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing goes wrong.
    None,
    /// Two scans a second are read only after four seconds.
    LazyScans,
    /// One server stops where it stands.
    Frozen,
    /// One server fails every call at once.
    Failing,
    /// One connection is about four times slower than the others.
    Slow,
    /// Nothing moves on one connection for ten seconds.
    Freeze,
    /// One connection acknowledges PINGs and answers no call.
    Mute,
    /// Every server tells its clients to go away, again and again.
    Goaway,
    /// One server is killed and started again.
    Restart,
}

impl Fault {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::LazyScans => "lazy-scans",
            Self::Frozen => "frozen",
            Self::Failing => "failing",
            Self::Slow => "slow",
            Self::Freeze => "freeze",
            Self::Mute => "mute",
            Self::Goaway => "goaway",
            Self::Restart => "restart",
        }
    }

    /// One line on what it is.
    pub fn explained(self) -> &'static str {
        match self {
            Self::None => {
                "nothing goes wrong: point reads, and one read in four a scan of 100 rows, read at once"
            }
            Self::LazyScans => {
                "two scans a second are of 3 MiB and left unread for 4 s, as by a caller that is busy: their data fills HTTP/2's receive windows (the late \
                 reads themselves aren't in the figures)"
            }
            Self::Frozen => {
                "the server that was connected to first stops: its connections stay open and nothing comes back"
            }
            Self::Failing => {
                "the server that was connected to first fails every call at once, with Unavailable or, behind a proxy, a reset connection"
            }
            Self::Slow => {
                "on the connection that was made first every answer comes 3 ms later, about four times as late as on the others"
            }
            Self::Freeze => {
                "nothing moves on the connection that was made first, for 10 s or to the end of the load; its server and all other connections are well"
            }
            Self::Mute => {
                "on the connection that was made first PINGs are answered and calls are not, to the end of the load"
            }
            Self::Goaway => {
                "every two seconds all servers tell the clients of all their connections to go away, let open calls end and take new connections"
            }
            Self::Restart => {
                "the server that was connected to first is killed, and started again a second later"
            }
        }
    }

    /// What it does to one server, if it is about a server.
    pub(crate) fn of_server(self) -> Option<Break> {
        match self {
            Self::None | Self::LazyScans => None,
            Self::Frozen => Some(Break::Freeze),
            Self::Failing => Some(Break::Fail),
            Self::Slow => Some(Break::Slow),
            Self::Freeze => Some(Break::FreezeOne),
            Self::Mute => Some(Break::Mute),
            Self::Goaway => Some(Break::Goaway),
            Self::Restart => Some(Break::Restart),
        }
    }

    /// Why it can't be shown with so many servers and rows, if it can't.
    pub(crate) fn unfit(self, servers: usize, rows: u32, embedded: bool) -> Option<String> {
        match self {
            Self::Goaway if !embedded => Some(
                "a proxy can't send GOAWAY in its server's name; it is shown with --server embedded".to_owned(),
            ),
            Self::Frozen | Self::Failing | Self::Restart if servers < 2 => Some(format!(
                "it needs a second server to go on with, and there is {servers}; list more with --server"
            )),
            Self::LazyScans if rows < LAZY_ROWS => Some(format!(
                "its scans read {LAZY_ROWS} rows, and --rows is {rows}; raise it"
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_cannot_be_shown_says_what_to_do() {
        assert!(
            Fault::Frozen
                .unfit(1, 5000, true)
                .is_some_and(|reason| reason.contains("--server"))
        );
        assert!(
            Fault::LazyScans
                .unfit(4, 100, true)
                .is_some_and(|reason| reason.contains("--rows"))
        );
        assert_eq!(Fault::None.unfit(1, 100, false), None);
        assert_eq!(Fault::Failing.unfit(4, 5000, false), None);
        assert!(Fault::Goaway.unfit(4, 5000, false).is_some());
        assert_eq!(Fault::Goaway.unfit(4, 5000, true), None);
    }
}
