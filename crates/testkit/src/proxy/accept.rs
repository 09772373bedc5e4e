//! Accepting connections, and what becomes of each.

use super::{
    AcceptMode, End, ProxiedConnection, Shared,
    pump::{self, Notes},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
    task::JoinSet,
    time,
};

pub(super) async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(treat(socket, Arc::clone(&shared)));
                }
                // Out of descriptors: the wait leaves others the time to close some.
                Err(_) => time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn treat(client: TcpStream, shared: Arc<Shared>) {
    /// Forgets the connection however its task ends.
    struct Live(Arc<Shared>, u64);
    impl Drop for Live {
        fn drop(&mut self) {
            self.0.settings().live.remove(&self.1);
        }
    }

    let mut number = 0;
    let (mode, upstream, mut control) = {
        let mut settings = shared.settings();
        let mode = settings.next.pop_front().unwrap_or(settings.mode);
        let (sender, control) = watch::channel(settings.fresh);
        shared.state.send_modify(|state| {
            number = state.connections.len() as u64;
            state.connections.push(ProxiedConnection {
                open: true,
                faults: settings.fresh.faults,
                ..ProxiedConnection::default()
            });
        });
        settings.live.insert(number, sender);
        (mode, settings.upstream, control)
    };
    let _live = Live(Arc::clone(&shared), number);
    let notes = Notes {
        number,
        state: shared.state.clone(),
    };
    match mode {
        AcceptMode::Serve => pump::run(client, upstream, control, notes).await,
        AcceptMode::Reset => pump::reset(&client),
        AcceptMode::Cut => drop(client),
        AcceptMode::Ignore => {
            if pump::wait_for_end(&mut control).await == End::Reset {
                pump::reset(&client);
            }
        }
    }
}
