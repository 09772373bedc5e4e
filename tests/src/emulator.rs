//! Google's BigTable emulator, where it is installed.

use std::{net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use tokio::process::{Child, Command};

/// The Cloud SDK's usual folders, from its installers.
const SDK: [&str; 4] = [
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/snap/google-cloud-cli/current",
];

/// A running emulator. Dropping it kills it.
#[derive(Debug)]
pub struct Emulator {
    addr: SocketAddr,
    _child: Child,
}

/// The program `cbtemulator`: on PATH or in the Cloud SDK's usual folders.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("google-cloud-sdk"));
    let sdk = SDK.iter().map(PathBuf::from).chain(home);
    std::env::split_paths(&on_path)
        .chain(sdk.map(|root| root.join("platform/bigtable-emulator")))
        .map(|folder| folder.join("cbtemulator"))
        .find(|program| program.is_file())
}

impl Emulator {
    /// Starts one on a free port; it is ready when it takes connections.
    ///
    /// # Panics
    /// When it can't be started.
    pub async fn start(program: PathBuf) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = free.local_addr().expect("it is bound");
        drop(free);
        let child = Command::new(&program)
            .args(["-host", "127.0.0.1", "-port", &addr.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{} can't be started: {error}", program.display()));
        let ready = async {
            while tokio::net::TcpStream::connect(addr).await.is_err() {
                // It has no other way to say that it listens.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        crate::soon("the emulator's start", ready).await;
        Self {
            addr,
            _child: child,
        }
    }

    /// Where it listens, as a URI.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}
