//! The command: its time line, its keyboard, its end.

mod common;

use common::*;
use std::{net::SocketAddr, process::Stdio, time::Duration};
use steadfast_proto::echo_client::EchoClient;
use steadfast_testkit::peer::{Peer, Script};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};
use tonic::transport::Channel;

struct Running {
    child: Child,
    keyboard: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    addr: SocketAddr,
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fault-proxy"));
    command
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Running {
    async fn start(upstream: SocketAddr, more: &[&str]) -> Self {
        let upstream = format!("localhost:{}", upstream.port());
        let mut command = command();
        command.args(["--listen", "127.0.0.1:0", "--upstream", &upstream]);
        let mut child = command.args(more).spawn().unwrap();
        let keyboard = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = soon(lines.next_line()).await.unwrap().unwrap();
        let addr = first.strip_prefix("listening on ").unwrap();
        let addr = addr.split(',').next().unwrap().parse().unwrap();
        Self {
            child,
            keyboard,
            lines,
            addr,
        }
    }

    async fn line(&mut self) -> String {
        soon(self.lines.next_line()).await.unwrap().expect("a line")
    }

    /// Types a command, and reads lines until one that contains `answer`.
    async fn say(&mut self, line: &str, answer: &str) -> String {
        let line = format!("{line}\n");
        self.keyboard.write_all(line.as_bytes()).await.unwrap();
        loop {
            let line = self.line().await;
            if line.contains(answer) {
                return line;
            }
        }
    }

    fn client(&self) -> EchoClient<Channel> {
        client(self.addr)
    }

    async fn stopped(mut self) {
        while self.line().await != "stopped" {}
        assert!(soon(self.child.wait()).await.unwrap().success());
    }
}

/// `localhost` may mean ::1 first, where no peer listens.
async fn start(more: &[&str]) -> (Peer, Running) {
    let peer = Peer::start(Script::good()).unwrap();
    let running = Running::start(peer.addr(), more).await;
    (peer, running)
}

#[tokio::test]
async fn the_keyboard_inflicts_and_shows() {
    let (peer, mut running) = start(&[]).await;
    let client = running.client();
    unary(&client).await.unwrap();
    for (fault, cure) in [
        ("freeze", "thaw"),
        ("mute 0", "unmute"),
        ("throttle 0", "unthrottle"),
    ] {
        running.say(fault, fault).await;
        let call = tokio::spawn({
            let client = client.clone();
            async move { unary(&client).await }
        });
        let before = peer.requests().len();
        pending(peer.wait_until(HANG, |state| state.requests.len() > before)).await;
        running.say(cure, cure).await;
        soon(call).await.unwrap().unwrap();
    }
    running.say("delay 40ms 0", "delay 40ms 0").await;
    let begun = now();
    unary(&client).await.unwrap();
    assert!(now() - begun >= Duration::from_millis(80));
    running.say("throttle 1000000", "throttle 1000000").await;
    let row = running.say("status", "open").await;
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!((words[0], words[4]), ("0", "5"), "{row}");
    assert!(row.contains("delay 40ms, throttle 1000000 B/s"), "{row}");
    running.say("melt", "\"melt\" is no action").await;
    running.say("help", "throttle BYTES").await;
    running.say("reset 0", "reset 0").await;
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    running.say("refuse", "refuse").await;
    unary(&running.client()).await.unwrap_err();
    running.say("ignore", "ignore").await;
    pending(unary(&running.client())).await;
    running.say("serve", "serve").await;
    unary(&running.client()).await.unwrap();
    running.keyboard.write_all(b"quit\n").await.unwrap();
    running.stopped().await;
}

#[tokio::test]
async fn the_time_line_runs_in_order_without_a_keyboard() {
    let (_peer, mut running) = start(&["--at", "150ms thaw", "--at", "0s freeze"]).await;
    drop(running.keyboard);
    let first = soon(running.lines.next_line()).await.unwrap().unwrap();
    assert!(first.ends_with(" freeze"), "{first}");
    unary(&client(running.addr))
        .await
        .expect("it is thawed after a while");
    let second = soon(running.lines.next_line()).await.unwrap().unwrap();
    assert!(second.ends_with(" thaw"), "{second}");
    let time = second.split("ms").next().unwrap();
    assert!(time.parse::<u64>().unwrap() >= 150, "{second}");
}

#[tokio::test]
async fn ctrl_c_ends_it() {
    let (peer, running) = start(&["--at", "1h cut"]).await;
    unary(&running.client()).await.unwrap();
    let id = i32::try_from(running.child.id().unwrap()).unwrap();
    let id = nix::unistd::Pid::from_raw(id);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    running.stopped().await;
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_can_not_be_done_is_said() {
    let cases: [(&[&str], &str); 4] = [
        (&[], "--upstream"),
        (&["--upstream", "nowhere.invalid:1"], "nowhere.invalid:1"),
        (
            &["--upstream", "127.0.0.1:1", "--at", "2s melt"],
            "is no action",
        ),
        (
            &["--upstream", "127.0.0.1:1", "--listen", "here"],
            "--listen",
        ),
    ];
    for (arguments, what) in cases {
        let output = soon(command().args(arguments).output()).await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(what), "{text}");
    }
}
