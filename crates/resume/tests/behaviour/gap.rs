//! Silence.

use http_body_util::BodyExt;
use steadfast_classify::call_error;
use steadfast_core::{Abandoned, Attempt, LocalKind, Outcome, now};
use steadfast_resume::AttemptsPer;

use super::{support::*, *};

fn silent_head(_: &Seen) -> Reply {
    None
}

/// R2, R6: nothing before the head for 5 s, then another attempt at once.
#[tokio::test(start_paused = true)]
async fn a_stall_before_the_head_is_given_up_after_the_gap() {
    let pool = Pool::new(|seen| match seen.number {
        0 => silent_head(seen),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let began = now();
    let got = call(over(&pool), up_to(5)).await.unwrap();
    assert_eq!(got, (all(5), 0));
    assert_eq!(now() - began, 5 * SECOND);
}

/// R2, R6: the same between messages; and it counts from when the caller waits.
#[tokio::test(start_paused = true)]
async fn a_stall_in_the_body_is_given_up_after_the_gap() {
    let pool = Pool::new(|seen| match seen.number {
        0 => grpc(numbers(0..2).wait()),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let mut body = open(over(&pool), up_to(5)).await;
    assert_eq!(data(&mut body).await, framed(&[0]));
    tokio::time::sleep(HOUR).await;
    assert_eq!(data(&mut body).await, framed(&[1]));
    tokio::time::sleep(HOUR).await;
    let began = now();
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(now() - began, 5 * SECOND);
    assert_eq!(rest, all(5)[12..]);
    assert_eq!(asked(&pool.seen()[1]), 2..5);
}

/// R2: with the last attempt there is no such limit.
#[tokio::test(start_paused = true)]
async fn the_last_attempt_waits() {
    let pool = Pool::new(|seen| match seen.number {
        0 => silent_head(seen),
        1 => grpc(numbers(0..1).wait()),
        _ => head(timed(vec![(HOUR, framed(&[1]).into())])),
    });
    let began = now();
    let got = call(over(&pool), up_to(2)).await.unwrap();
    assert_eq!(got, (all(2), 0));
    assert_eq!((pool.calls(), now() - began), (3, HOUR + 10 * SECOND));
}

/// R2: one attempt has neither a gap time-out nor a second one.
#[tokio::test(start_paused = true)]
async fn one_attempt_is_sent_once_and_waits() {
    let slow = Pool::new(|_| head(timed(vec![(HOUR, framed(&[0]).into())])));
    let once = |config: &mut ResumeConfig| config.max_attempts = 1;
    let got = call(over_with(&slow, once), up_to(1)).await.unwrap();
    assert_eq!(got, (all(1), 0));
    let cut = Pool::scripted([|| grpc(numbers(0..1).error("cut")), good]);
    call(over_with(&cut, once), up_to(2)).await.unwrap_err();
    assert_eq!((slow.calls(), cut.calls()), (1, 1));
}

/// R2: a large message that is still arriving isn't silent.
#[tokio::test(start_paused = true)]
async fn frames_of_a_large_message_are_no_silence() {
    let pool = Pool::new(|_| {
        let message = framed(&[0]);
        let bytes = message
            .into_iter()
            .map(|byte| (4 * SECOND, vec![byte].into()));
        head(timed(bytes.collect()))
    });
    let began = now();
    let got = call(over(&pool), up_to(1)).await.unwrap();
    assert_eq!((got, pool.calls()), ((all(1), 0), 1));
    assert_eq!(now() - began, 24 * SECOND);
}

/// R2: the wait for the head has an end of its own, which isn't resumed; where it comes first, no stall before the
/// head ever is.
#[tokio::test(start_paused = true)]
async fn the_head_times_out() {
    for (gap, least) in [(5, 60), (60, 60), (61, 60)] {
        let pool = Pool::new(|_| None);
        let began = now();
        let service = over_with(&pool, |config| config.gap_timeout = gap * SECOND);
        let error = call(service, up_to(1)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("resume.header_timeout"), "{text}");
        let calls = if gap < 60 { 3 } else { 1 };
        assert_eq!(pool.calls(), calls, "{gap}");
        // Two gaps come before the last attempt.
        let gaps = (calls as u32 - 1) * gap * SECOND;
        assert_eq!(now() - began, gaps + least * SECOND, "{gap}");
    }
}

/// R5: the attempt that was silent is marked for the layers below, and dropped before the next one is sent.
#[tokio::test(start_paused = true)]
async fn the_silent_attempt_is_marked_and_dropped_first() {
    let (body, watch) = numbers(0..1).wait().start();
    let first = std::sync::Mutex::new(Some(body));
    let pool = Pool::new(move |seen| match first.lock().unwrap().take() {
        Some(body) => {
            let body = body.map_err(|error| tonic::Status::unknown(error.to_string()));
            head(body.boxed_unsync())
        }
        None => {
            assert!(watch.is_dropped(), "the first attempt is still open");
            // What the mark was is forgotten for the next attempt.
            let attempt = seen.extensions.get::<Attempt>().unwrap();
            assert_eq!((attempt.abandoned(), attempt.outcome()), (None, None));
            grpc(numbers(asked(seen)).status(0))
        }
    });
    let (handle, mut request) = (Attempt::new(), up_to(2));
    request.extensions_mut().insert(handle.clone());
    let mut body = open(over(&pool), request).await;
    assert_eq!(data(&mut body).await, framed(&[0]));
    assert_eq!(data(&mut body).await, framed(&[1]));
    assert_eq!(pool.calls(), 2);
    // Where no attempt follows, the mark stays.
    let pool = Pool::new(|_| grpc(numbers(0..1).wait()));
    let (handle, mut request) = (Attempt::new(), up_to(2));
    request.extensions_mut().insert(handle.clone());
    let service = over_with(&pool, |config| {
        (
            config.max_attempts,
            config.budget_percent,
            config.budget_per_second,
        ) = (2, 0, 0);
    });
    let error = call(service, request).await.unwrap_err();
    assert_eq!(handle.abandoned(), Some(Abandoned::GapTimeout));
    assert_eq!(call_error(&*error), Outcome::Local(LocalKind::Budget));
}

/// R2: an attempt that waits in the pool for a channel blames none.
#[tokio::test(start_paused = true)]
async fn a_queue_is_no_silence() {
    let pool = Pool::new(|seen| grpc(numbers(asked(seen)).status(0)));
    let service = over(&pool);
    // A pool shows itself when it fills in a channel.
    call(service.clone(), up_to(1)).await.unwrap();
    let waiting = Queue(pool.clone(), 30 * SECOND);
    let service = layer(|_| {}).layer(waiting);
    let began = now();
    // Before it showed itself there may be no pool, so that silence counts.
    let got = support::whole(service.clone(), up_to(1)).await.unwrap();
    assert_eq!(got, (all(1), 0));
    let first = now() - began;
    let began = now();
    support::whole(service, up_to(1)).await.unwrap();
    assert_eq!((first, now() - began), (40 * SECOND, 30 * SECOND));
}

/// A pool in which each request waits first.
#[derive(Clone)]
struct Queue(Pool, Duration);

impl tower::Service<Request<Body>> for Queue {
    type Response = Response<ReplyBody>;
    type Error = BoxError;
    type Future = <Pool as tower::Service<Request<Body>>>::Future;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut pool, time) = (self.0.clone(), self.1);
        Box::pin(async move {
            tokio::time::sleep(time).await;
            pool.call(request).await
        })
    }
}

/// R2: attempts are counted over the stream, or since the last message.
#[tokio::test(start_paused = true)]
async fn attempts_count_over_the_stream_or_since_progress() {
    let one_each = || Pool::new(|seen| grpc(numbers(seen.body[5]..seen.body[5] + 1).error("cut")));
    let pool = one_each();
    let error = call(over(&pool), up_to(9)).await.unwrap_err();
    assert!(error.to_string().contains("after 3 attempts"), "{error}");

    let pool = one_each();
    let service = over_with(&pool, |config| config.attempts_per = AttemptsPer::Progress);
    assert_eq!(call(service, up_to(9)).await.unwrap(), (all(9), 0));
    assert_eq!(pool.calls(), 9);

    // Without progress both end.
    let pool = Pool::scripted([
        || grpc(numbers(0..1).error("cut")),
        || grpc(numbers(0..0).error("cut")),
    ]);
    let service = over_with(&pool, |config| config.attempts_per = AttemptsPer::Progress);
    call(service, up_to(9)).await.unwrap_err();
    assert_eq!(pool.calls(), 3);
    // And with it there is a gap time-out again.
    let pool = Pool::scripted([
        || grpc(BodyScript::default().error("cut")),
        || grpc(BodyScript::default().error("cut")),
        || grpc(numbers(0..1).wait()),
        || grpc(numbers(1..2).status(0)),
    ]);
    let service = over_with(&pool, |config| config.attempts_per = AttemptsPer::Progress);
    assert_eq!(call(service, up_to(2)).await.unwrap(), (all(2), 0));
}

/// R2: where a deadline is farther than the gap, a message that makes the attempts count anew brings the gap back.
#[tokio::test(start_paused = true)]
async fn the_gap_comes_back_before_the_deadline() {
    let pool = Pool::scripted([
        || grpc(BodyScript::default().error("cut")),
        || grpc(BodyScript::default().error("cut")),
        || {
            head(timed(vec![
                (HOUR, framed(&[0]).into()),
                (HOUR * 9, framed(&[1]).into()),
            ]))
        },
        || grpc(numbers(1..2).status(0)),
    ]);
    let service = over_with(&pool, |config| config.attempts_per = AttemptsPer::Progress);
    let mut request = up_to(2);
    let deadline = http::HeaderValue::from_static("5H");
    request.headers_mut().insert("grpc-timeout", deadline);
    let began = now();
    assert_eq!(call(service, request).await.unwrap(), (all(2), 0));
    let took = now() - began;
    assert!(
        took >= HOUR + 5 * SECOND && took < HOUR + 6 * SECOND,
        "{took:?}"
    );
}

/// R5, R2: a stream whose attempts count since the last message forgets with them which channels failed before: over its
/// days it would come to be all of them.
#[tokio::test(start_paused = true)]
async fn a_long_stream_avoids_what_failed_since_its_last_message() {
    let pool = Pool::new(|seen| grpc(numbers(seen.body[5]..seen.body[5] + 1).error("cut")));
    let service = over_with(&pool, |config| config.attempts_per = AttemptsPer::Progress);
    assert_eq!(call(service, up_to(50)).await.unwrap(), (all(50), 0));
    let seen = pool.seen();
    assert_eq!(seen.len(), 50);
    for pair in seen.windows(2) {
        let avoided = pair[1].extensions.get::<steadfast_core::Avoid>().unwrap();
        assert_eq!(*avoided, [pair[0].channel].into_iter().collect());
    }
}
