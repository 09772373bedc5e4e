//! The words that the time line and the keyboard share.

use std::{fmt, str::FromStr, time::Duration};
use steadfast_testkit::proxy::{AcceptMode, FaultProxy, Which};

pub(crate) const HELP: &str = "\
Actions, for one connection by its number (the first is 0), or for all:
  freeze [N]            no byte moves
  thaw [N]              bytes move again
  mute [N]              alive, PINGs answered, but no request and no answer passes
  unmute [N]            all passes again, first what was held
  delay TIME [N]        holds each byte back, both ways: 20ms, 1s; a bare number is ms
  throttle BYTES [N]    passes at most so many bytes a second, each way
  unthrottle [N]        passes bytes as fast as they come
  cut [N]               closes (FIN), both ways
  reset [N]             resets (TCP RST), both ways
For new connections:
  ignore                accepts them, and neither reads nor writes
  refuse                accepts and resets them
  serve                 passes them on, as at the start
From the keyboard also:
  status                a table of the connections
  help                  this text
  quit                  ends the proxy";

/// What a line may say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    Act(Act),
    Status,
    Help,
    Quit,
}

/// What may be done to connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    Freeze(Which),
    Thaw(Which),
    Mute(Which),
    Unmute(Which),
    Delay(Duration, Which),
    Throttle(u64, Which),
    Unthrottle(Which),
    Cut(Which),
    Reset(Which),
    Accept(AcceptMode),
}

/// An action on the time line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    pub(crate) time: Duration,
    pub(crate) act: Act,
}

impl Act {
    pub(crate) fn perform(self, proxy: &FaultProxy) {
        match self {
            Self::Freeze(which) => proxy.freeze(which),
            Self::Thaw(which) => proxy.thaw(which),
            Self::Mute(which) => proxy.mute(which),
            Self::Unmute(which) => proxy.unmute(which),
            Self::Delay(time, which) => proxy.delay(which, time, time),
            Self::Throttle(bytes, which) => proxy.throttle(which, bytes),
            Self::Unthrottle(which) => proxy.unthrottle(which),
            Self::Cut(which) => proxy.cut(which),
            Self::Reset(which) => proxy.reset(which),
            Self::Accept(mode) => proxy.set_accept_mode(mode),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, which) = match self {
            Self::Freeze(which) => ("freeze", which),
            Self::Thaw(which) => ("thaw", which),
            Self::Mute(which) => ("mute", which),
            Self::Unmute(which) => ("unmute", which),
            Self::Delay(time, which) => {
                write!(f, "delay {}", humantime::format_duration(*time))?;
                ("", which)
            }
            Self::Throttle(bytes, which) => {
                write!(f, "throttle {bytes}")?;
                ("", which)
            }
            Self::Unthrottle(which) => ("unthrottle", which),
            Self::Cut(which) => ("cut", which),
            Self::Reset(which) => ("reset", which),
            Self::Accept(AcceptMode::Ignore) => return f.write_str("ignore"),
            Self::Accept(AcceptMode::Reset) => return f.write_str("refuse"),
            Self::Accept(_) => return f.write_str("serve"),
        };
        match which {
            Which::All => f.write_str(word),
            Which::One(number) => write!(f, "{word} {number}"),
        }
    }
}

impl FromStr for Act {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let word = words.next().ok_or("an action is missing")?;
        let act = match word {
            "freeze" => Self::Freeze(connection(words.next())?),
            "thaw" => Self::Thaw(connection(words.next())?),
            "mute" => Self::Mute(connection(words.next())?),
            "unmute" => Self::Unmute(connection(words.next())?),
            "delay" => {
                let time = words.next().ok_or("delay needs a time, such as 20ms")?;
                Self::Delay(delay(time)?, connection(words.next())?)
            }
            "throttle" => {
                let bytes = words
                    .next()
                    .ok_or("throttle needs a number of bytes a second")?;
                let bad = |_| format!("{bytes:?} is no number of bytes a second");
                Self::Throttle(bytes.parse().map_err(bad)?, connection(words.next())?)
            }
            "unthrottle" => Self::Unthrottle(connection(words.next())?),
            "cut" => Self::Cut(connection(words.next())?),
            "reset" => Self::Reset(connection(words.next())?),
            "ignore" => Self::Accept(AcceptMode::Ignore),
            "refuse" => Self::Accept(AcceptMode::Reset),
            "serve" => Self::Accept(AcceptMode::Serve),
            other => return Err(format!("{other:?} is no action; `help` lists them")),
        };
        match words.next() {
            None => Ok(act),
            Some(more) => Err(format!("{more:?} is too much after {word}")),
        }
    }
}

impl FromStr for Word {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "status" => Ok(Self::Status),
            "help" => Ok(Self::Help),
            "quit" => Ok(Self::Quit),
            action => action.parse().map(Self::Act),
        }
    }
}

impl FromStr for Timed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (time, act) = text
            .split_once(char::is_whitespace)
            .ok_or("a time and an action are needed, such as '2s freeze 0'")?;
        Ok(Self {
            time: duration(time)?,
            act: act.parse()?,
        })
    }
}

fn connection(word: Option<&str>) -> Result<Which, String> {
    match word {
        None | Some("all") => Ok(Which::All),
        Some(word) => match word.parse() {
            Ok(number) => Ok(Which::One(number)),
            Err(_) => Err(format!("{word:?} is no connection: a number or `all`")),
        },
    }
}

fn delay(word: &str) -> Result<Duration, String> {
    match word.parse() {
        Ok(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        Err(_) => duration(word),
    }
}

fn duration(word: &str) -> Result<Duration, String> {
    humantime::parse_duration(word).map_err(|error| format!("{word:?} is no time: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_printed_the_same() {
        for text in [
            "freeze",
            "thaw 3",
            "mute 0",
            "unmute",
            "delay 20ms 1",
            "throttle 1000",
            "unthrottle 2",
            "cut",
            "reset 7",
            "ignore",
            "refuse",
            "serve",
        ] {
            assert_eq!(text.parse::<Act>().unwrap().to_string(), text);
        }
        assert_eq!("freeze all".parse(), Ok(Act::Freeze(Which::All)));
        let fifty = Duration::from_millis(50);
        assert_eq!("delay 50".parse(), Ok(Act::Delay(fifty, Which::All)));
        assert_eq!(" status ".parse(), Ok(Word::Status));
        let timed = Timed {
            time: Duration::from_secs(90),
            act: Act::Cut(Which::One(2)),
        };
        assert_eq!("1m30s  cut 2".parse(), Ok(timed));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("", "an action is missing"),
            ("melt", "\"melt\" is no action"),
            ("freeze x", "\"x\" is no connection"),
            ("freeze -1", "\"-1\" is no connection"),
            ("freeze 1 2", "\"2\" is too much after freeze"),
            ("serve 1", "\"1\" is too much after serve"),
            ("delay", "delay needs a time"),
            ("delay soon", "\"soon\" is no time"),
            ("throttle", "throttle needs"),
            ("throttle 1.5", "\"1.5\" is no number"),
        ] {
            let error = text.parse::<Act>().unwrap_err();
            assert!(error.contains(what), "{text:?}: {error}");
        }
        assert!("2s".parse::<Timed>().unwrap_err().contains("'2s freeze 0'"));
        assert!(
            "x freeze"
                .parse::<Timed>()
                .unwrap_err()
                .contains("\"x\" is no time")
        );
    }
}
