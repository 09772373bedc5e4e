//! etcd: a watch over 1,000 puts, and a restart of the server among them.

use std::time::Duration;

use steadfast::Pool;
use steadfast::rules::etcd::Watch;
use steadfast_testkit::proxy::FaultProxy;
use steadfast_tests::{
    services::{self, Service},
    skip,
};
use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Streaming, client::Grpc, transport::Endpoint};

use super::{
    TIME,
    chaos::inflict,
    config,
    etcd::{self, Asks, Create, Put, Response},
    resumed, unary,
};

const PUTS: u32 = 1_000;

/// Watches all keys that begin with `k`, as each row of `watches` says.
async fn watch(
    pool: Pool,
    watches: Vec<Create>,
) -> (mpsc::UnboundedSender<etcd::Request>, Streaming<Response>) {
    let (asks, receiver) = mpsc::unbounded_channel();
    for create in watches {
        let request = etcd::Request {
            asks: Some(Asks::Create(create)),
        };
        asks.send(request).unwrap();
    }
    let mut client = Grpc::new(pool);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
    let codec = tonic_prost::ProstCodec::<etcd::Request, Response>::default();
    let requests = Request::new(UnboundedReceiverStream::new(receiver));
    let stream = client.streaming(requests, path, codec).await.unwrap();
    (asks, stream.into_inner())
}

/// Writes past the proxy, and restarts the server after half of them.
async fn put_all(server: &mut Service) {
    let endpoint = Endpoint::from_shared(server.uri()).unwrap();
    let mut channel = endpoint.connect().await.unwrap();
    for number in 0..PUTS {
        if number == PUTS / 2 {
            server.restart(Duration::from_millis(300)).await;
            channel = endpoint.connect().await.unwrap();
        }
        let put = Put {
            key: format!("k{}", number % 7).into_bytes(),
            value: number.to_string().into_bytes(),
        };
        let path = "/etcdserverpb.KV/Put";
        let done: Result<Put, _> = unary(channel.clone(), path, put.clone()).await;
        if let Err(error) = done {
            // The new server has no leader yet, and hasn't written it.
            assert!(number == PUTS / 2, "{error:?}");
            sleep(Duration::from_secs(3)).await;
            let _: Put = unary(channel.clone(), path, put).await.unwrap();
        }
        sleep(TIME / (PUTS + 100)).await;
    }
}

/// R9, R4: each watch sees each put once, in order, under the id that it was told first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_for_a_minute() {
    let Some(program) = services::etcd() else {
        return skip(
            "etcd",
            "a watch of etcd behind faults",
            "there is no etcd on PATH",
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let mut server = Service::start_etcd(program, folder.path()).await;
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let pool = Pool::builder(proxy.uri())
        .config(config())
        .without_env()
        .resume_bidi(Watch)
        .build()
        .unwrap();
    let all = |watch_id| Create {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        progress_notify: true,
        fragment: true,
        watch_id,
        ..Create::default()
    };
    let (asks, mut stream) = watch(pool.clone(), vec![all(0), all(7)]).await;
    let mut made = Vec::new();
    while made.len() < 2 {
        let response = stream.message().await.unwrap().unwrap();
        assert!(response.created && !response.canceled, "{response:?}");
        made.push(response.watch_id);
    }
    assert_eq!(made, [0, 7]);
    let reading = async {
        let mut seen = [Vec::new(), Vec::new()];
        while seen.iter().any(|seen| seen.len() < PUTS as usize) {
            let response = stream.message().await.unwrap().expect("it goes on");
            assert!(!response.created && !response.canceled, "{response:?}");
            let watch = usize::from(response.watch_id == 7);
            assert!(watch == 1 || response.watch_id == 0);
            for event in response.events {
                let value = event.kv.unwrap().value;
                seen[watch].push(String::from_utf8(value).unwrap().parse::<u32>().unwrap());
            }
        }
        seen
    };
    let (seen, (), ()) = tokio::join!(reading, put_all(&mut server), inflict(&proxy, 3, TIME));
    for seen in seen {
        assert_eq!(seen, (0..PUTS).collect::<Vec<_>>());
    }
    assert!(resumed(&pool) > 3);
    drop(asks);
}
