//! Bidirectional methods: what was sent is sent again, as its rule says.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use http_body_util::StreamBody;
use steadfast_resume::{BidiRule, Conversation};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::{support::*, *};

/// Keeps the caller's messages, and sends all of them again. An answer to each is owed, but for the message `quiet`.
struct Again;

#[derive(Default)]
struct Kept(Mutex<Vec<Bytes>>);

impl BidiRule for Again {
    fn method(&self) -> &str {
        OTHER
    }

    fn begin(&self) -> Arc<dyn Conversation> {
        Arc::new(Kept::default())
    }
}

impl Conversation for Kept {
    fn sent(&self, message: &[u8]) -> Result<Pass, BoxError> {
        match message {
            b"bad" => return Err("a bad message".into()),
            b"panic" => panic!("out of paper"),
            b"secret" => return Ok(Pass::Withhold),
            _ => {}
        }
        self.0.lock().unwrap().push(Bytes::copy_from_slice(message));
        Ok(Pass::AsIs)
    }

    fn received(&self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn is_owed(&self) -> bool {
        let last = self.0.lock().unwrap().last().cloned();
        last.is_some_and(|last| last != "quiet")
    }

    fn rest(&self) -> Result<Rest, BoxError> {
        let requests = self.0.lock().unwrap().clone();
        Ok(Rest::Send {
            requests,
            first: Vec::new(),
        })
    }
}

type Sender = mpsc::UnboundedSender<Result<Frame<Bytes>, Status>>;

fn conversation() -> (Sender, Request<Body>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let body = StreamBody::new(UnboundedReceiverStream::new(receiver));
    (sender, Request::post(OTHER).body(Body::new(body)).unwrap())
}

fn send(sender: &Sender, message: &[u8]) {
    sender
        .send(Ok(Frame::data(framed(message).into())))
        .unwrap();
}

/// A server that answers each message with itself, and breaks after so many of them: by attempt.
#[derive(Clone)]
struct Echo {
    breaks: Arc<Vec<usize>>,
    attempts: Arc<AtomicU32>,
    /// What came, by attempt.
    came: Arc<Mutex<Vec<Vec<Bytes>>>>,
    /// Whether it reads on when it broke.
    reads_on: bool,
}

impl Echo {
    fn new(breaks: &[usize]) -> Self {
        Self {
            breaks: Arc::new(breaks.to_vec()),
            attempts: Arc::default(),
            came: Arc::default(),
            reads_on: false,
        }
    }
}

impl tower::Service<Request<Body>> for Echo {
    type Response = Response<ReplyBody>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Response<ReplyBody>, BoxError>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let attempt = self.attempts.fetch_add(1, Relaxed) as usize;
        let left = self.breaks.get(attempt).copied().unwrap_or(usize::MAX);
        let (came, reads_on) = (Arc::clone(&self.came), self.reads_on);
        came.lock().unwrap().push(Vec::new());
        let (answers, receiver) = mpsc::unbounded_channel();
        let mut body = request.into_body();
        tokio::spawn(async move {
            for _ in 0..left {
                match body.frame().await {
                    Some(Ok(frame)) => {
                        let data = frame.into_data().unwrap();
                        came.lock().unwrap()[attempt].push(data.clone());
                        if answers.send(Ok(Frame::data(data))).is_err() {
                            return;
                        }
                    }
                    Some(Err(error)) => return drop(answers.send(Err(error))),
                    None => {
                        let mut trailers = http::HeaderMap::new();
                        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                        return drop(answers.send(Ok(Frame::trailers(trailers))));
                    }
                }
            }
            let io = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            let _ = answers.send(Err(Status::from_error(Box::new(io))));
            while reads_on && let Some(Ok(frame)) = body.frame().await {
                came.lock().unwrap()[attempt].push(frame.into_data().unwrap());
            }
        });
        let body = StreamBody::new(UnboundedReceiverStream::new(receiver)).boxed_unsync();
        let head = Response::builder().header("content-type", "application/grpc");
        std::future::ready(Ok(head.body(body).unwrap()))
    }
}

async fn talk(echo: &Echo, request: Request<Body>) -> ResumableBody<ReplyBody> {
    let layer = ResumableStreamLayer::default().bidi_rule(Again).unwrap();
    layer
        .layer(echo.clone())
        .oneshot(request)
        .await
        .unwrap()
        .into_body()
}

/// R1: what the rule kept begins the next attempt, and the caller's further messages follow it.
#[tokio::test(start_paused = true)]
async fn what_was_sent_is_sent_again() {
    let echo = Echo::new(&[2, 3]);
    let (sender, request) = conversation();
    let mut body = talk(&echo, request).await;
    for message in [b"a", b"b"] {
        send(&sender, message);
        assert_eq!(data(&mut body).await, framed(message));
    }
    // The first attempt is over: both come again, then a third, which ends the second attempt.
    for message in [b"a", b"b"] {
        assert_eq!(data(&mut body).await, framed(message));
    }
    send(&sender, b"c");
    for message in [b"c", b"a", b"b", b"c"] {
        assert_eq!(data(&mut body).await, framed(message));
    }
    drop(sender);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    let came = echo.came.lock().unwrap();
    let counts: Vec<_> = came.iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 3, 3]);
}

/// R1: a caller that has ended its side has ended it for the next attempt, too.
#[tokio::test(start_paused = true)]
async fn an_ended_side_stays_ended() {
    let echo = Echo::new(&[1]);
    let (sender, request) = conversation();
    send(&sender, b"a");
    drop(sender);
    let got = talk(&echo, request).await.collect().await.unwrap();
    assert_eq!(got.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(got.to_bytes(), framed(b"a").repeat(2));
}

/// R1: a message that is withheld isn't sent.
#[tokio::test(start_paused = true)]
async fn withheld_messages_are_not_sent() {
    let echo = Echo::new(&[]);
    let (sender, request) = conversation();
    for message in [&b"a"[..], b"secret", b"b"] {
        send(&sender, message);
    }
    drop(sender);
    let got = talk(&echo, request).await.collect().await.unwrap();
    assert_eq!(got.to_bytes(), [framed(b"a"), framed(b"b")].concat());
}

/// R8: a message of the caller that the rule can't read, or panics on, ends its stream.
#[tokio::test(start_paused = true)]
async fn a_bad_message_of_the_caller_ends_its_stream() {
    for (message, says) in [(&b"bad"[..], "a bad message"), (b"panic", "out of paper")] {
        let echo = Echo::new(&[]);
        let (sender, request) = conversation();
        let mut body = talk(&echo, request).await;
        send(&sender, b"a");
        assert_eq!(data(&mut body).await, framed(b"a"));
        send(&sender, message);
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(body.frame().await.is_none());
        assert_eq!(echo.attempts.load(Relaxed), 1);
    }
}

/// R1: an error of the caller's own body is no failure of a channel.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_caller_is_not_resumed() {
    let echo = Echo::new(&[]);
    let (sender, request) = conversation();
    let mut body = talk(&echo, request).await;
    sender
        .send(Err(Status::internal("the caller's own")))
        .unwrap();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the caller's own"), "{error}");
    assert_eq!(echo.attempts.load(Relaxed), 1);
}

/// R4: a message that was read of the caller, and not sent when the attempt broke, isn't sent twice: the rule has it.
#[tokio::test(start_paused = true)]
async fn what_was_read_and_not_sent_comes_once() {
    let echo = Echo::new(&[1]);
    let (sender, request) = conversation();
    let mut body = talk(&echo, request).await;
    // Two messages in one frame, of which the server takes the frame.
    let both = [framed(b"a"), framed(b"b")].concat();
    sender.send(Ok(Frame::data(both.clone().into()))).unwrap();
    assert_eq!(data(&mut body).await, both);
    // The next attempt gets them as the rule kept them.
    assert_eq!(data(&mut body).await, framed(b"a"));
    assert_eq!(data(&mut body).await, framed(b"b"));
    drop(sender);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
}

/// R2: while the server owes nothing, quiet is no silence: neither before the head nor after it.
#[tokio::test(start_paused = true)]
async fn quiet_is_no_silence_where_nothing_is_owed() {
    // A server that answers nothing: not even with a head, the first time.
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let server = tower::service_fn(move |request: Request<Body>| {
        let attempt = counted.fetch_add(1, Relaxed);
        async move {
            let _open = request;
            if attempt == 0 {
                tokio::time::sleep(HOUR).await;
            }
            let body = BodyScript::default().wait();
            Ok::<_, BoxError>(head(support::body(body)).unwrap().unwrap())
        }
    });
    let layer = ResumableStreamLayer::default().bidi_rule(Again).unwrap();
    let (sender, request) = conversation();
    let began = steadfast_core::now();
    let mut body = layer
        .layer(server)
        .oneshot(request)
        .await
        .unwrap()
        .into_body();
    assert_eq!(steadfast_core::now() - began, HOUR);
    let quiet = tokio::time::timeout(HOUR, body.frame()).await;
    assert!(quiet.is_err() && attempts.load(Relaxed) == 1);
    drop(sender);
}

/// R4: what was read of the caller in the same frame, and is still to be sent when the attempt breaks, isn't sent beside
/// what the rule kept.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_frame_is_not_sent_twice() {
    let echo = Echo::new(&[1]);
    let (sender, request) = conversation();
    let mut body = talk(&echo, request).await;
    // Two pieces, of which the server takes one.
    let frame = [framed(b"a"), framed(b"secret"), framed(b"b")].concat();
    sender.send(Ok(Frame::data(frame.into()))).unwrap();
    for message in [b"a", b"a", b"b"] {
        assert_eq!(data(&mut body).await, framed(message));
    }
    drop(sender);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
}

/// R4: an attempt that broke gets nothing more of the caller, even while the next one is waited for: what it took then
/// would be lost.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_broke_reads_no_more() {
    let echo = Echo {
        reads_on: true,
        ..Echo::new(&[1])
    };
    let config = ResumeConfig {
        backoff: SECOND,
        ..ResumeConfig::default()
    };
    let layer = ResumableStreamLayer::new(config)
        .unwrap()
        .bidi_rule(Again)
        .unwrap();
    let (sender, request) = conversation();
    let mut body = layer
        .layer(echo.clone())
        .oneshot(request)
        .await
        .unwrap()
        .into_body();
    send(&sender, b"a");
    assert_eq!(data(&mut body).await, framed(b"a"));
    let rest = tokio::spawn(async move {
        let again = [data(&mut body).await, data(&mut body).await];
        (again, body)
    });
    // In the wait before the next attempt, wherever in it that is.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    send(&sender, b"b");
    let (again, _body) = rest.await.unwrap();
    assert_eq!(again, [framed(b"a"), framed(b"b")]);
    assert_eq!(echo.came.lock().unwrap()[0].len(), 1);
}
