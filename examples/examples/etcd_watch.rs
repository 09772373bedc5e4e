//! An etcd watch that doesn't notice that its connections are cut and its server is restarted.
//!
//! It starts an etcd of its own, the `etcd` on PATH, behind a proxy that cuts the watch's connection every second; half-way
//! etcd is killed and started again.
//!
//! ```sh
//! cargo run -p steadfast-examples --example etcd_watch
//! ```

use std::{
    error::Error,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
    time::Duration,
};

use steadfast::{AttemptsPer, Config, Pool, rules::etcd::Watch};
use steadfast_testkit::proxy::{FaultProxy, Which};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};
use tonic::{Request, client::Grpc, transport::Endpoint};

const PUTS: u32 = 200;

/// What of etcd's messages is needed here. A program has them from its etcd client.
mod etcd {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Put {
        #[prost(string, tag = "1")]
        pub(crate) key: String,
        #[prost(string, tag = "2")]
        pub(crate) value: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct PutResponse {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct WatchRequest {
        #[prost(message, optional, tag = "1")]
        pub(crate) create: Option<Create>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Create {
        #[prost(string, tag = "1")]
        pub(crate) key: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct WatchResponse {
        #[prost(bool, tag = "3")]
        pub(crate) created: bool,
        #[prost(message, repeated, tag = "11")]
        pub(crate) events: Vec<Event>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Event {
        #[prost(message, optional, tag = "2")]
        pub(crate) kv: Option<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct KeyValue {
        #[prost(string, tag = "5")]
        pub(crate) value: String,
    }
}

/// Runs etcd, and waits until it takes connections.
async fn run(
    folder: &Path,
    clients: SocketAddr,
    peers: SocketAddr,
) -> Result<Child, Box<dyn Error + Send + Sync>> {
    let (clients_uri, peers_uri) = (format!("http://{clients}"), format!("http://{peers}"));
    let child = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder)
        .args([
            "--listen-client-urls",
            &clients_uri,
            "--advertise-client-urls",
            &clients_uri,
        ])
        .args([
            "--listen-peer-urls",
            &peers_uri,
            "--initial-advertise-peer-urls",
            &peers_uri,
        ])
        .args(["--initial-cluster", &format!("default={peers_uri}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("etcd can't be started: {error}; Debian has it as etcd-server"))?;
    while TcpStream::connect(clients).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(child)
}

fn free() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Writes to etcd itself, not through the proxy, until it is written.
async fn put(at: SocketAddr, value: u32) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut client = Grpc::new(Endpoint::from_shared(format!("http://{at}"))?.connect_lazy());
    client.ready().await?;
    let put = etcd::Put {
        key: "key".to_owned(),
        value: value.to_string(),
    };
    let path = http::uri::PathAndQuery::from_static("/etcdserverpb.KV/Put");
    let codec = tonic_prost::ProstCodec::<_, etcd::PutResponse>::default();
    client.unary(Request::new(put), path, codec).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = tempfile::tempdir()?;
    let (clients, peers) = (free()?, free()?);
    let mut server = run(folder.path(), clients, peers).await?;
    let proxy = FaultProxy::start(clients)?;

    let mut config = Config::default();
    // A watch lives for days: attempts count since the last event.
    config.resume.attempts_per = AttemptsPer::Progress;
    // While etcd is away an attempt waits for it.
    config.balance.wait_for_ready = Some(Duration::from_secs(30));
    let pool = Pool::builder(proxy.uri())
        .config(config)
        .resume_bidi(Watch)
        .build()?;

    let create = etcd::Create {
        key: "key".to_owned(),
    };
    let request = etcd::WatchRequest {
        create: Some(create),
    };
    // The caller's side stays open as long as the watch.
    let requests =
        tokio_stream::StreamExt::chain(tokio_stream::once(request), tokio_stream::pending());
    let mut client = Grpc::new(pool.clone());
    client.ready().await?;
    let path = http::uri::PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
    let codec = tonic_prost::ProstCodec::<_, etcd::WatchResponse>::default();
    let mut watch = client
        .streaming(Request::new(requests), path, codec)
        .await?
        .into_inner();
    assert!(watch.message().await?.is_some_and(|made| made.created));

    let writes = async {
        for value in 0..PUTS {
            if value == PUTS / 2 {
                server.kill().await?;
                println!("etcd is killed");
                sleep(Duration::from_secs(1)).await;
                server = run(folder.path(), clients, peers).await?;
                // Until it leads again.
                sleep(Duration::from_secs(3)).await;
                println!("etcd is back");
            }
            put(clients, value).await?;
            if value % 20 == 0 {
                proxy.cut(Which::All);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    };
    let events = async {
        let mut seen = Vec::new();
        while seen.len() < PUTS as usize {
            let response = watch.message().await?.ok_or("the watch ended")?;
            for event in response.events {
                seen.push(event.kv.unwrap_or_default().value.parse::<u32>()?);
            }
        }
        Ok::<Vec<u32>, Box<dyn Error + Send + Sync>>(seen)
    };
    let ((), seen) = tokio::try_join!(writes, events)?;
    assert_eq!(seen, (0..PUTS).collect::<Vec<_>>());
    let counts = &pool.resume().snapshot().rules[0];
    println!(
        "{PUTS} events, each once and in order; the watch went on {} times",
        counts.resumed
    );
    Ok(())
}
