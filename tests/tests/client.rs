//! A generated client on the pool: unchanged, cloned, concurrent, with everything that clients do.

use steadfast::{BalanceConfig, Config, Places, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_tests::{echo::EchoProcess, soon};
use tokio_stream::StreamExt;
use tonic::{
    Code, Request, Status, codec::CompressionEncoding, metadata::MetadataValue,
    service::interceptor::InterceptedService,
};

fn request(payload: &str) -> EchoRequest {
    EchoRequest {
        payload: payload.as_bytes().to_vec(),
        count: 3,
        ..EchoRequest::default()
    }
}

/// X1: unary, client-, server- and bidi-streaming calls, as on a plain channel.
#[tokio::test]
async fn all_four_kinds_of_call() {
    let echo = EchoProcess::start().await;
    let pool = Pool::new(echo.uri()).unwrap();
    let mut client = EchoClient::new(pool.clone());
    let reply = soon("a unary call", client.unary(request("hello")))
        .await
        .unwrap();
    assert_eq!(reply.into_inner().payload, b"hello");

    let mut replies = client
        .server_stream(request("x"))
        .await
        .unwrap()
        .into_inner();
    let mut indexes = Vec::new();
    while let Some(reply) = soon("a message", replies.message()).await.unwrap() {
        indexes.push(reply.index);
    }
    assert_eq!(indexes, [0, 1, 2]);

    let upload = tokio_stream::iter(["a", "b", "c"].map(request));
    let reply = soon("an upload", client.client_stream(upload))
        .await
        .unwrap();
    assert_eq!(reply.into_inner().payload, b"abc");

    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut replies = soon("a bidi call", client.bidi(requests))
        .await
        .unwrap()
        .into_inner();
    for text in ["one", "two"] {
        sender.send(request(text)).await.unwrap();
        let reply = soon("its answer", replies.message())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(reply.payload, text.as_bytes());
    }
    drop(sender);
    assert!(soon("the end", replies.message()).await.unwrap().is_none());
    drop(replies);
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// X1: one client, cloned to many tasks; a status goes through with its code and text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloned_and_concurrent() {
    let servers = [EchoProcess::start().await, EchoProcess::start().await];
    let places = Places::list(servers.iter().map(EchoProcess::uri));
    let pool = Pool::builder(servers[0].uri())
        .places(places)
        .build()
        .unwrap();
    let client = EchoClient::new(pool.clone());
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..500 {
        let mut client = client.clone();
        calls.spawn(async move {
            let code = if n % 5 == 0 { Code::NotFound } else { Code::Ok };
            let call = EchoRequest {
                code: code as u32,
                ..request(&n.to_string())
            };
            match client.unary(call).await {
                Ok(reply) => assert_eq!(reply.into_inner().payload, n.to_string().as_bytes()),
                Err(status) => {
                    assert_eq!(
                        (status.code(), status.message()),
                        (Code::NotFound, "as asked for")
                    );
                    assert_eq!(n % 5, 0);
                }
            }
        });
    }
    while let Some(done) = soon("a call", calls.join_next()).await {
        done.unwrap();
    }
    assert!(servers.iter().all(|server| server.calls() > 100));
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// X1: an interceptor above the pool sees and changes each call.
#[tokio::test]
async fn with_an_interceptor() {
    let echo = EchoProcess::start().await;
    let pool = Pool::new(echo.uri()).unwrap();
    let refusing = |request: Request<()>| match request.metadata().get("token") {
        Some(_) => Ok(request),
        None => Err(Status::unauthenticated("no token")),
    };
    let mut client = EchoClient::new(InterceptedService::new(pool, refusing));
    let status = client.unary(request("x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let mut with_token = Request::new(request("x"));
    with_token
        .metadata_mut()
        .insert("token", MetadataValue::from_static("t"));
    soon("a call", client.unary(with_token)).await.unwrap();
    assert_eq!(echo.calls(), 1);
}

/// X1: compressed both ways.
#[tokio::test]
async fn with_gzip() {
    let echo = EchoProcess::start().await;
    let pool = Pool::new(echo.uri()).unwrap();
    let mut client = EchoClient::new(pool)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let large = "steadfast ".repeat(20_000);
    let reply = soon("a call", client.unary(request(&large))).await.unwrap();
    assert_eq!(reply.metadata().get("grpc-encoding").unwrap(), "gzip");
    assert_eq!(reply.into_inner().payload, large.as_bytes());
}

/// B10, X3: a pool in a struct, built before any runtime; a bad setting is an error that names it.
#[test]
fn a_nameable_type_built_outside_a_runtime() {
    struct Owner {
        pool: Pool,
    }
    let owner = Owner {
        pool: Pool::new("http://127.0.0.1:1").unwrap(),
    };
    assert_eq!(owner.pool.snapshot().size(), 0);
    let config = Config {
        balance: BalanceConfig {
            min: 9,
            ..BalanceConfig::default()
        },
        ..Config::default()
    };
    let error = Pool::builder("http://127.0.0.1:1")
        .config(config)
        .build()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "balance.initial is 4; allowed is 9 to 64"
    );
    for bad in [
        "",
        "projects/p",
        "projects//instances/i",
        "projects/p/instances/i/tables/t",
    ] {
        let error = Pool::bigtable("http://127.0.0.1:1", bad).unwrap_err();
        assert_eq!(error.field(), "instance");
    }
    assert!(Pool::bigtable("http://127.0.0.1:1", "projects/p/instances/i").is_ok());
    assert_eq!(Pool::new("no uri at all").unwrap_err().field(), "endpoint");
}

/// B9: a caller that wants to know which channel served it puts an `Attempt` into its request.
#[tokio::test]
async fn an_attempt_through_a_generated_client() {
    let echo = EchoProcess::start().await;
    let pool = Pool::new(echo.uri()).unwrap();
    let attempt = steadfast::Attempt::new();
    let mut call = Request::new(request("x"));
    call.extensions_mut().insert(attempt.clone());
    let mut replies = EchoClient::new(pool.clone())
        .server_stream(call)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(attempt.outcome(), None, "its body is still open");
    assert_eq!(pool.snapshot().in_flight(), 1);
    while let Some(reply) = replies.next().await {
        reply.unwrap();
    }
    assert!(attempt.outcome().unwrap().is_ok());
    let ids: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    assert!(ids.contains(&attempt.channel().unwrap()));
    assert_eq!(
        attempt.place().unwrap().as_str().trim_end_matches('/'),
        echo.uri()
    );
}
