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

/// B1, X6: uploads that the server answers after the first message, with a RST_STREAM(NO_ERROR) behind it
/// (RFC 9113, section 8.1): every caller has its answer, each upload is let go, nothing stays in flight
/// and memory doesn't grow. Without the reset the stream is half open, and the upload is the caller's.
#[tokio::test]
async fn a_thousand_early_answers_leave_nothing() {
    let answer = Answer::steps([
        Step::headers(),
        Step::good_message(),
        Step::status(0, ""),
        Step::Rst(0),
    ]);
    let peer = Peer::start(Script::always(answer)).unwrap();
    let config = Config {
        balance: BalanceConfig::fixed(2),
        ..steadfast_tests::lower_layers()
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
    let gone = async {
        while alive.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    let left = tokio::time::timeout(HANG / 4, gone).await;
    let kept = alive.load(Ordering::SeqCst);
    assert!(left.is_ok(), "{kept} uploads kept");
    let grown = live_bytes().saturating_sub(at_200);
    // The server's own notes of 1,000 requests are in it; the uploads would be 64 MB.
    assert!(grown < 4 << 20, "{grown} bytes more after 1,000 calls");
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert_eq!(pool.penalty().snapshot().len(), 0);
    assert_eq!(peer.connections(), 2);
}
