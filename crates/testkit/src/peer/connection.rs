//! One connection: the task that owns its socket.

use super::{
    Accept, PeerState, Script,
    link::{End, Link},
    stream::{Command, Context},
    transport::Transport,
};
use crate::clock::now;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, split},
    sync::{mpsc, watch},
    time,
};

/// While this much is waiting to be written, no more commands are taken: the client does not read.
const WRITE_LIMIT: usize = 64 * 1024;

/// While this much is waiting to be written, not even the client's frames are read.
const READ_LIMIT: usize = 1024 * 1024;

/// Marks the connection as closed however the task ends.
struct Open {
    number: u64,
    state: watch::Sender<PeerState>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.state.send_modify(|state| {
            if let Some(connection) = state.connection(self.number) {
                connection.open = false;
                connection.open_streams.clear();
            }
        });
    }
}

pub(super) async fn run<T: Transport>(
    mut socket: T,
    script: Script,
    context: Context,
    commands: mpsc::Receiver<Command>,
) {
    let open = Open {
        number: context.number,
        state: context.state.clone(),
    };
    socket.begin();
    let end = match &script.accept {
        Accept::Serve => serve(&mut socket, script, context, commands).await,
        Accept::Fin => End::Fin,
        Accept::TcpReset => End::TcpReset,
        Accept::Mute => End::Drain,
        Accept::Text(text) => greet(&mut socket, text).await,
    };
    match end {
        End::Closed => {}
        End::TcpReset => socket.reset(),
        End::Fin => {
            let _ = socket.shutdown().await;
            drop(open);
            // Closing with unread bytes would send RST instead, so the client's side is read to its end.
            drain(&mut socket).await;
        }
        End::Drain => drain(&mut socket).await,
    }
}

async fn greet<T: Transport>(socket: &mut T, text: &str) -> End {
    let mut first = [0; 1024];
    match socket.read(&mut first).await {
        Ok(1..) if socket.write_all(text.as_bytes()).await.is_ok() => End::Fin,
        _ => End::Closed,
    }
}

async fn drain<T: Transport>(socket: &mut T) {
    let mut scrap = vec![0; 16 * 1024];
    while let Ok(1..) = socket.read(&mut scrap).await {}
}

async fn serve<T: Transport>(
    socket: &mut T,
    script: Script,
    context: Context,
    mut commands: mpsc::Receiver<Command>,
) -> End {
    let (mut read, mut write) = split(socket);
    let forget_after = script.forget_after;
    let mut last = now();
    let delay = time::sleep(script.settings.delay);
    tokio::pin!(delay);
    let mut started = script.settings.delay.is_zero();
    let mut link = Link::new(script, context);
    loop {
        if let Some(end) = link.end
            && started
            && link.out.is_empty()
        {
            return end;
        }
        let closing = link.end.is_some();
        let idles = forget_after.filter(|_| link.is_idle());
        tokio::select! {
            () = &mut delay, if !started => started = true,
            written = write.write_buf(&mut link.out), if started && !link.out.is_empty() => {
                last = now();
                if written.is_err() {
                    // The client closed, but what it said before, a GOAWAY perhaps, may still be there to read.
                    link.fall_silent();
                }
            }
            Some(command) = commands.recv(), if started && !closing && link.out.len() < WRITE_LIMIT => {
                link.command(command);
            }
            seen = read.read_buf(&mut link.reader.bytes), if !closing && link.out.len() < READ_LIMIT => {
                last = now();
                match seen {
                    Ok(_) if link.forgotten => return End::TcpReset,
                    Ok(1..) => link.received(),
                    _ => return End::Closed,
                }
            }
            () = time::sleep_until(last + idles.unwrap_or_default()), if idles.is_some() => link.forget(),
        }
    }
}
