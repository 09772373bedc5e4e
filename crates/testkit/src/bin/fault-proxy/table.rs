//! The table of connections.

use std::fmt::Write;
use steadfast_testkit::proxy::{Faults, ProxiedConnection};

/// One line for each connection, under a heading.
pub(crate) fn table(connections: &[ProxiedConnection]) -> String {
    let mut out = format!(
        "{:>10}  {:<6}  {:>12}  {:>12}  {:>8}  {:>6}  {}\n",
        "connection", "state", "to server", "to client", "requests", "pings", "faults"
    );
    for (number, connection) in connections.iter().enumerate() {
        let state = if connection.open { "open" } else { "closed" };
        // Writing to a String doesn't fail.
        let _ = writeln!(
            out,
            "{number:>10}  {state:<6}  {:>12}  {:>12}  {:>8}  {:>6}  {}",
            connection.to_server,
            connection.to_client,
            connection.headers,
            connection.pings,
            faults(&connection.faults)
        );
    }
    out
}

fn faults(faults: &Faults) -> String {
    let mut words = Vec::new();
    if faults.frozen {
        words.push("frozen".to_owned());
    }
    if faults.muted {
        words.push("muted".to_owned());
    }
    let delay = faults.to_server.max(faults.to_client);
    if !delay.is_zero() {
        words.push(format!("delay {}", humantime::format_duration(delay)));
    }
    if let Some(bytes) = faults.bytes_per_second {
        words.push(format!("throttle {bytes} B/s"));
    }
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}
