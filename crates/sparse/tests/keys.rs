//! Whose call it is, and which calls need no place.

mod support;

use http::Request;
use steadfast_core::{Local, Probing};
use steadfast_sparse::{FlowId, Key, SparseFlowLayer};
use steadfast_testkit::body::ScriptBody;
use support::{Inner, counts, of, places};
use tonic::{Code, Status};
use tower::{Layer, Service};

/// How many flows the layer sees for these requests, all open at once.
async fn flows(layer: &SparseFlowLayer, requests: impl IntoIterator<Item = Request<()>>) -> usize {
    let inner = Inner::default();
    let mut service = layer.layer(inner.clone());
    let mut open = Vec::new();
    for request in requests {
        inner.give(ScriptBody::new().wait().start().0);
        open.push(service.call(request).await.unwrap());
    }
    layer.snapshot().flows
}

fn client() -> SparseFlowLayer {
    SparseFlowLayer::client(places(100)).unwrap()
}

fn method(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

fn with_metadata(name: &str, value: &str) -> Request<()> {
    Request::builder().header(name, value).body(()).unwrap()
}

/// F1: on a client a call is of the flow in its extensions, else of its method's.
#[tokio::test]
async fn a_clients_flows() {
    let same = [of("a"), of("a"), of("b")];
    assert_eq!(flows(&client(), same).await, 2);
    let methods = [
        method("/s/a"),
        method("/s/a"),
        method("/s/b"),
        method("/t/a"),
    ];
    assert_eq!(flows(&client(), methods).await, 3);
    let mut both = method("/s/a");
    both.extensions_mut().insert(FlowId::of("a"));
    assert_eq!(flows(&client(), [both, of("a")]).await, 1);
}

/// F1: by metadata, whatever its bytes; calls without it are the next key's, or one flow together.
#[tokio::test]
async fn by_metadata() {
    let layer = client().with_key(Key::metadata("x-tenant").unwrap());
    let requests = || {
        [
            with_metadata("x-tenant", "one"),
            with_metadata("X-Tenant", "one"),
            with_metadata("x-tenant", "two"),
            with_metadata("x-other", "one"),
            method("/s/a"),
        ]
    };
    assert_eq!(flows(&layer, requests()).await, 3);
    let layer = client().with_key(Key::metadata("x-tenant").unwrap().or(Key::method()));
    assert_eq!(flows(&layer, requests()).await, 4);
}

/// F1: by a function of the user.
#[tokio::test]
async fn by_a_function() {
    let key = Key::from_fn(|call| {
        assert!(call.extensions().get::<u8>().is_none() && call.headers().is_empty());
        call.method().split('/').nth(1).map(FlowId::of)
    });
    let layer = client().with_key(key);
    assert_eq!(
        flows(&layer, [method("/s/a"), method("/s/b"), method("/t/a")]).await,
        2
    );
}

/// F1: a key that panics fails that call, and nothing else.
#[tokio::test]
async fn a_key_that_panics_fails_that_call_only() {
    let layer = client().with_key(Key::from_fn(|call| match call.method() {
        "/bad" => panic!("no {}", "idea"),
        "/worse" => std::panic::panic_any(7),
        other => Some(FlowId::of(other)),
    }));
    let inner = Inner::default();
    let mut service = layer.layer(inner.clone());
    for (path, text) in [("/bad", "no idea"), ("/worse", "no message")] {
        let error = service.call(method(path)).await.unwrap_err();
        let status: &Status = error.downcast_ref().unwrap();
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains(text), "{status}");
        assert!(Local::find(&*error).is_some());
        assert_eq!((counts(&layer), inner.calls()), ((0, 0), 0));
    }
    service.call(method("/good")).await.unwrap();
    assert_eq!(counts(&layer), (0, 0));
}

/// F7: probes of a pool pass while every place is taken, and so do the methods that are named; the rest waits.
#[tokio::test(start_paused = true)]
async fn some_calls_need_no_place() {
    let layer = SparseFlowLayer::client(places(1)).unwrap();
    let layer = layer.with_express(["/pkg.A/", "/pkg.B/Ping"]).unwrap();
    let inner = Inner::default();
    let mut service = layer.layer(inner.clone());
    inner.give(ScriptBody::new().wait().start().0);
    let _first = service.call(of("a")).await.unwrap();
    let mut probe = of("a");
    probe.extensions_mut().insert(Probing::new());
    let pass = [probe, method("/pkg.A/Anything"), method("/pkg.B/Ping")];
    let mut open = Vec::new();
    for request in pass {
        inner.give(ScriptBody::new().wait().start().0);
        open.push(service.call(request).await.unwrap());
    }
    assert_eq!(counts(&layer), (1, 0), "they take no place");
    let wait = [
        "/pkg.B/Pong",
        "/pkg.B/Ping/",
        "/pkg.AA/Ping",
        "/x/pkg.A/",
        "/pkg.B/Pin",
    ];
    let waiting = wait.map(|path| service.call(method(path)));
    assert_eq!(counts(&layer), (1, 5));
    drop((open, waiting));
}

/// X1: two layers of the same settings are two, and clones of one are one.
#[tokio::test(start_paused = true)]
async fn a_layer_with_another_key_has_places_of_its_own() {
    let layer = SparseFlowLayer::client(places(1)).unwrap();
    let other = layer.with_key(Key::method());
    let (mut a, mut b) = (layer.layer(Inner::default()), other.layer(Inner::default()));
    let _held = a.call(of("a"));
    assert_eq!((counts(&layer), counts(&other)), ((1, 0), (0, 0)));
    drop(b.call(of("a")).await.unwrap());
    assert_eq!(counts(&layer.clone()), (1, 0));
}
