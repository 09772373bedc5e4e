//! Real servers, where they are installed: Google's BigTable and Spanner emulators, and etcd.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::{Child, Command};

/// The Cloud SDK's usual folders, from its installers.
const SDK: [&str; 4] = [
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/snap/google-cloud-cli/current",
];

/// A server that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Service {
    program: PathBuf,
    arguments: Vec<String>,
    addr: SocketAddr,
    child: Child,
}

/// The BigTable emulator, `cbtemulator`: on PATH or in the Cloud SDK's folders.
#[must_use]
pub fn bigtable() -> Option<PathBuf> {
    find("cbtemulator", &["platform/bigtable-emulator"])
}

/// The Spanner emulator's `emulator_main`: likewise.
#[must_use]
pub fn spanner() -> Option<PathBuf> {
    find("emulator_main", &["bin/cloud_spanner_emulator"])
}

/// `etcd`, on PATH.
#[must_use]
pub fn etcd() -> Option<PathBuf> {
    find("etcd", &[])
}

fn find(program: &str, in_sdk: &[&str]) -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("google-cloud-sdk"));
    let sdk = SDK.iter().map(PathBuf::from).chain(home);
    let in_sdk = sdk.flat_map(|root| in_sdk.iter().map(move |folder| root.join(folder)));
    std::env::split_paths(&on_path)
        .chain(in_sdk)
        .map(|folder| folder.join(program))
        .find(|program| program.is_file())
}

fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("it is bound")
}

impl Service {
    /// A BigTable emulator.
    ///
    /// # Panics
    /// When it can't be started.
    pub async fn start_bigtable(program: PathBuf) -> Self {
        let addr = free_address();
        let port = addr.port().to_string();
        Self::start(program, &["-host", "127.0.0.1", "-port", &port], addr).await
    }

    /// A Spanner emulator.
    ///
    /// # Panics
    /// When it can't be started.
    pub async fn start_spanner(program: PathBuf) -> Self {
        let addr = free_address();
        let address = addr.to_string();
        Self::start(program, &["--host_port", &address], addr).await
    }

    /// An etcd of one node that keeps its data in this folder.
    ///
    /// # Panics
    /// When it can't be started.
    pub async fn start_etcd(program: PathBuf, folder: &Path) -> Self {
        let addr = free_address();
        let clients = format!("http://{addr}");
        let peers = format!("http://{}", free_address());
        let cluster = format!("default={peers}");
        let folder = folder.to_str().expect("a folder's name in UTF-8");
        let arguments = [
            ("--data-dir", folder),
            ("--listen-client-urls", &clients),
            ("--advertise-client-urls", &clients),
            ("--listen-peer-urls", &peers),
            ("--initial-advertise-peer-urls", &peers),
            ("--initial-cluster", &cluster),
        ];
        let arguments: Vec<_> = arguments.into_iter().flat_map(|(a, b)| [a, b]).collect();
        Self::start(program, &arguments, addr).await
    }

    async fn start(program: PathBuf, arguments: &[&str], addr: SocketAddr) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let child = run(&program, &arguments);
        let service = Self {
            program,
            arguments,
            addr,
            child,
        };
        service.ready().await;
        service
    }

    /// Ready is when it takes connections: there is no other way that all of them have to say so.
    async fn ready(&self) {
        let ready = async {
            while tokio::net::TcpStream::connect(self.addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        crate::soon("the server's start", ready).await;
    }

    /// Kills it, as a crash does, and starts it again in the same place after this time.
    ///
    /// # Panics
    /// When it can't be started.
    pub async fn restart(&mut self, after: Duration) {
        self.child.kill().await.expect("it can be killed");
        tokio::time::sleep(after).await;
        self.child = run(&self.program, &self.arguments);
        self.ready().await;
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

fn run(program: &Path, arguments: &[String]) -> Child {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{} can't be started: {error}", program.display()))
}
