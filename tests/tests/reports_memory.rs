//! A server that answers a client-streaming call before the client has sent everything: nothing of the
//! call stays.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use steadfast::{BalanceConfig, Config, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::{
    alloc::{CountingAllocator, live_bytes},
    peer::{Answer, Peer, Script, Step},
};
use steadfast_tests::{HANG, soon};
use tokio_stream::StreamExt;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// What an upload that is kept would keep.
const OWNED: usize = 64 * 1024;

struct Upload(Arc<AtomicUsize>, Vec<u8>);

impl Upload {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(alive), vec![7; OWNED])
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// B1, X6: 1,000 uploads of which the server answers each after the first message, with and without a
/// RST_STREAM(NO_ERROR) behind it: every caller has its answer, each upload is let go, nothing stays in
/// flight and memory doesn't grow.
#[tokio::test]
async fn a_thousand_early_answers_leave_nothing() {
    for reset in [false, true] {
        let answer = |reset: bool| {
            let steps = [
                Step::headers(),
                Step::good_message(),
                Step::status(0, ""),
                Step::Rst(0),
            ];
            Answer::steps(steps.into_iter().take(if reset { 4 } else { 3 }))
        };
        let peer = Peer::start(Script::always(answer(reset))).unwrap();
        let config = Config {
            balance: BalanceConfig::fixed(2),
            ..Config::default()
        };
        let builder = Pool::builder(peer.uri()).config(config);
        let pool = builder.without_env().build().unwrap();
        let alive = Arc::new(AtomicUsize::new(0));
        let mut at_200 = 0;
        for n in 0..1_200 {
            let owned = Upload::new(&alive);
            let first = tokio_stream::once(EchoRequest {
                payload: owned.1[..100].to_vec(),
                ..EchoRequest::default()
            });
            // Never ends, and owns what it would go on to send.
            let rest = tokio_stream::pending().map(move |request: EchoRequest| {
                assert_eq!(owned.1.len(), OWNED);
                request
            });
            let mut client = EchoClient::new(pool.clone());
            let reply = soon("a call", client.client_stream(first.chain(rest))).await;
            assert_eq!(reply.unwrap().into_inner().payload, b"abc");
            if n == 199 {
                at_200 = live_bytes();
            }
        }
        // The client resets what it didn't send to its end, unless the server did.
        if !reset {
            let told = peer.wait_until(HANG, |seen| seen.resets.len() == 1_200);
            told.await.unwrap();
        }
        let gone = async {
            while alive.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        };
        soon("the uploads going", gone).await;
        let grown = live_bytes().saturating_sub(at_200);
        // The server's own notes of 1,000 requests are in it; the uploads would be 64 MB.
        assert!(grown < 4 << 20, "{grown} bytes more after 1,000 calls");
        assert_eq!(pool.snapshot().in_flight(), 0);
        assert_eq!(pool.penalty().snapshot().len(), 0);
        assert_eq!(peer.connections(), 2);
    }
}
