//! What people reported of errors that hide their cause and of deadlines that look like cancels, with a whole
//! pool above.

use std::{error::Error, iter::successors, time::Duration};

use steadfast::{Local, LocalKind, Pool, classify::deepest_cause};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, ClosedPort, Peer, Script, Step, SynDrop};
use steadfast_tests::{
    soon,
    whole::{HEALTH, STREAM, UNARY, UPLOAD, builder, quick, ready, unary},
};
use tokio::{task::JoinSet, time::sleep};
use tonic::{Code, Request, Status, transport::Endpoint};

/// A connection that is lost within its first second is taken for a dial that failed.
const YOUNG: Duration = Duration::from_millis(1_100);

/// Warms up well, and answers calls with these steps.
fn answers(steps: impl IntoIterator<Item = Step>) -> Peer {
    let steps: Vec<Step> = [Step::AwaitRequest].into_iter().chain(steps).collect();
    let answer = move |request: &steadfast_testkit::peer::Request| match &*request.path {
        HEALTH => Answer::good(),
        _ => Answer::steps(steps.clone()),
    };
    Peer::start(Script::new(answer)).unwrap()
}

/// T5: wherever connections break, for an idempotent call, a write, or one that finds no connection: the text
/// that a caller of a generated client reads has the deepest source in it, and for a call that was repeated
/// how often and where; and no such status is taken for the server's, for it has a source.
#[tokio::test]
async fn the_deepest_source_is_in_the_text() {
    let ends = [
        vec![Step::TcpReset],
        vec![Step::Fin],
        vec![Step::Rst(2)],
        vec![Step::headers(), Step::TcpReset],
    ];
    let mut rows = JoinSet::new();
    for steps in ends {
        rows.spawn(async move {
            let peer = answers(steps);
            let pool = ready(builder(&[peer.uri()], quick(4)), 4).await;
            sleep(YOUNG).await;
            let read = unary(&pool).await.unwrap_err();
            assert!(
                read.message().contains("after 3 attempts on channel #"),
                "{read}"
            );
            let mut client = EchoClient::new(pool);
            let upload = tokio_stream::once(EchoRequest::default());
            let write = soon("a write", client.client_stream(upload)).await;
            (read, write.unwrap_err())
        });
    }
    let closed = ClosedPort::new().unwrap();
    let pool = builder(&[closed.uri()], quick(1)).build().unwrap();
    let refused = unary(&pool).await.unwrap_err();
    assert!(refused.message().contains("refused"), "{refused}");
    assert!(
        refused.message().contains(&closed.addr().to_string()),
        "{refused}"
    );
    assert_eq!(
        Local::find(&refused).map(Local::kind),
        Some(LocalKind::NoChannel)
    );
    let rows = rows.join_all().await.into_iter();
    for status in rows.flat_map(|(a, b)| [a, b]).chain([refused]) {
        assert!(status.source().is_some(), "{status:?}");
        let deepest = deepest_cause(&status);
        assert!(status.message().contains(&deepest), "{deepest}: {status:?}");
    }
}

/// Whether this is how a call that ran out of its own time ends: never as a cancel, and told by a source.
fn is_deadline(status: &Status) -> bool {
    let first: &(dyn Error + 'static) = status;
    let expired = successors(Some(first), |&error| error.source())
        .any(|error| error.is::<tonic::TimeoutExpired>());
    let local = Local::find(status).map(Local::kind) == Some(LocalKind::Deadline);
    status.code() == Code::DeadlineExceeded && (expired || local)
}

/// How calls of all kinds end in 100 ms: the caller's own, or what the pool gives those that set none.
async fn time_out(pool: &Pool, own: bool) -> Vec<Status> {
    let mut ends = Vec::new();
    let mut client = EchoClient::new(pool.clone());
    let request = || {
        let mut request = Request::new(EchoRequest::default());
        if own {
            request.set_timeout(Duration::from_millis(100));
        }
        request
    };
    let call = soon("a call", client.unary(request())).await;
    ends.push(call.unwrap_err());
    let upload = request().map(tokio_stream::once);
    let call = soon("an upload", client.client_stream(upload)).await;
    ends.push(call.unwrap_err());
    ends.push(
        match soon("a stream", client.server_stream(request())).await {
            Err(status) => status,
            Ok(stream) => {
                let mut stream = stream.into_inner();
                loop {
                    match soon("a message", stream.message()).await {
                        Ok(message) => assert!(message.is_some(), "it ended well"),
                        Err(status) => break status,
                    }
                }
            }
        },
    );
    ends
}

/// M1: while it connects, waits for the head, reads the reply or waits between attempts, and when the server
/// is told and ends the call at the same time: a call that runs out of time ends with DEADLINE_EXCEEDED and
/// the reason in its sources, never with CANCELLED, and it is sent once. Control: plain tonic says CANCELLED.
#[tokio::test]
async fn a_deadline_is_never_a_cancel() {
    let syn_drop = SynDrop::new().unwrap();
    let head = answers([]);
    let body = answers([Step::headers(), Step::good_message()]);
    let tells = answers([
        Step::Wait(Duration::from_millis(100)),
        Step::trailers_only(1, "Timeout expired"),
    ]);
    let plain = Endpoint::from_shared(head.uri()).unwrap();
    let mut plain = EchoClient::new(plain.connect().await.unwrap());
    let mut request = Request::new(EchoRequest::default());
    request.set_timeout(Duration::from_millis(20));
    let control = soon("a call", plain.unary(request)).await;
    assert_eq!(control.unwrap_err().code(), Code::Cancelled);
    let places = [syn_drop.uri(), head.uri(), body.uri(), tells.uri()];
    for (number, place) in places.into_iter().enumerate() {
        for own in [true, false] {
            let mut builder = builder(std::slice::from_ref(&place), quick(1));
            for method in [UNARY, STREAM, UPLOAD] {
                builder = builder.deadline(method, Duration::from_millis(100));
            }
            let pool = builder.build().unwrap();
            for status in time_out(&pool, own).await {
                assert!(is_deadline(&status), "{number}: {status:?}");
            }
            assert_eq!(pool.retry().snapshot().repeated, 0);
        }
    }
    let refuse = answers([Step::Rst(2)]);
    let mut config = quick(1);
    // Nearly always longer than the deadline.
    config.retry.backoff = Duration::from_secs(60);
    config.retry.backoff_max = Duration::from_secs(60);
    let pool = ready(builder(&[refuse.uri()], config), 1).await;
    let mut request = Request::new(EchoRequest::default());
    request.set_timeout(Duration::from_millis(100));
    let call = soon("a call", EchoClient::new(pool).unary(request)).await;
    let status = call.unwrap_err();
    assert!(is_deadline(&status), "{status:?}");
}
