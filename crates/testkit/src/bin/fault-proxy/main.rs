//! The fault proxy in front of any server: faults on a time line, and from the keyboard.

mod command;
mod table;

use clap::Parser;
use command::{Timed, Word};
use std::{
    error::Error,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    process::ExitCode,
    task::Poll,
    time::Duration,
};
use steadfast_testkit::proxy::FaultProxy;
use tokio::{
    net::lookup_host,
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// A TCP proxy that fails on command.
///
/// It passes connections on to one server, and inflicts on them what its time line and its keyboard say. A line on standard
/// input is a command: `help` lists them. Ctrl-C or `quit` ends it.
#[derive(Debug, Parser)]
#[command(name = "fault-proxy", after_help = command::HELP)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The server. A name is looked up once, at the start.
    #[arg(long, value_name = "HOST:PORT")]
    upstream: String,
    /// What to do at a time after the start: '2s freeze 0', '1m30s thaw'. May be given many times.
    #[arg(long, value_name = "TIME ACTION [CONNECTION]")]
    at: Vec<Timed>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fault-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let unresolved = |error: &dyn Error| format!("{}: {error}", options.upstream);
    let mut found = lookup_host(&options.upstream)
        .await
        .map_err(|error| unresolved(&error))?;
    let upstream = found
        .next()
        .ok_or_else(|| format!("{} has no address", options.upstream))?;
    let proxy = FaultProxy::bind(options.listen, upstream)
        .map_err(|error| format!("{}: {error}", options.listen))?;
    // Polled before anybody is told that it listens: the first poll sets the handler, and from then on
    // Ctrl-C ends it in order.
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(interrupted.as_mut().poll(cx))).await {
        return Ok(result?);
    }
    println!("listening on {}, upstream {upstream}", proxy.addr());

    let begun = now();
    let mut timeline = options.at;
    // Stable: actions of one time keep their order.
    timeline.sort_by_key(|timed| timed.time);
    let mut timeline = timeline.into_iter().peekable();
    let mut lines = keyboard();
    let mut typing = true;
    loop {
        let due = timeline.peek().map(|timed| begun + timed.time);
        let act = tokio::select! {
            result = &mut interrupted => {
                result?;
                break;
            }
            () = sleep_until(due.unwrap_or(begun)), if due.is_some() => match timeline.next() {
                Some(timed) => timed.act,
                None => continue,
            },
            line = lines.recv(), if typing => match line.as_deref().map(str::trim) {
                // The end of standard input ends the typing only: the proxy may run in the background.
                None => {
                    typing = false;
                    continue;
                }
                Some("") => continue,
                Some(line) => match line.parse() {
                    Ok(Word::Act(act)) => act,
                    Ok(Word::Status) => {
                        print!("{}", table::table(&proxy.connections()));
                        continue;
                    }
                    Ok(Word::Help) => {
                        println!("{}", command::HELP);
                        continue;
                    }
                    Ok(Word::Quit) => break,
                    Err(error) => {
                        println!("{error}");
                        continue;
                    }
                },
            },
        };
        act.perform(&proxy);
        let time = Duration::from_millis((now() - begun).as_millis() as u64);
        println!("{} {act}", humantime::format_duration(time));
    }
    print!("{}", table::table(&proxy.connections()));
    proxy.stop().await;
    println!("stopped");
    Ok(())
}

/// The lines of standard input. A thread of its own reads them, which the program doesn't wait for at its end.
fn keyboard() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command runs on the real clock"
)]
fn now() -> Instant {
    Instant::now()
}
