//! The embedded server read by Google's own `cbt`.

mod common;

use std::path::PathBuf;
use std::process::Output;

use common::{client, write};
use steadfast_lab::server::Embedded;

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

async fn cbt(server: &Embedded, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new("cbt");
    command
        .env("BIGTABLE_EMULATOR_HOST", server.address().to_string())
        .args(["-project", "p", "-instance", "i"])
        .args(arguments)
        .kill_on_drop(true);
    command.output().await.expect("cbt is on PATH")
}

#[tokio::test]
async fn googles_cbt_reads_the_same_rows() {
    if on_path("cbt").is_none() {
        let required = std::env::var("REQUIRE").is_ok_and(|required| required.contains("bigtable"));
        assert!(
            !required,
            "REQUIRE names bigtable, but cbt isn't on PATH; install the Cloud SDK's cbt"
        );
        eprintln!(
            "SKIPPED: cbt isn't on PATH; install the Cloud SDK's cbt to try the embedded server with Google's own client"
        );
        return;
    }
    let server = Embedded::start().await.unwrap();
    write(&mut client(&server).await, &["alpha", "beta", "gamma"]).await;
    let read = cbt(&server, &["read", "t"]).await;
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{read:?}");
    for key in ["alpha", "beta", "gamma"] {
        assert!(
            text.lines().any(|line| line == key) && text.contains(&format!("\"{key}\"")),
            "{key} in {text}"
        );
    }
    let some = cbt(&server, &["read", "t", "start=beta", "count=1"]).await;
    let text = String::from_utf8_lossy(&some.stdout);
    assert!(
        text.contains("beta") && !text.contains("alpha") && !text.contains("gamma"),
        "{text}"
    );
    let one = cbt(&server, &["lookup", "t", "gamma", "cells-per-column=1"]).await;
    assert!(
        String::from_utf8_lossy(&one.stdout).contains("cf:q"),
        "{one:?}"
    );
}
