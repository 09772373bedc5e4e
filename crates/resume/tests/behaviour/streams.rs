//! What the caller gets.

use http_body::Body as _;
use http_body_util::BodyExt;

use super::{support::*, *};

/// R4: half a message is dropped where the stream broke, and comes whole from the next attempt.
#[tokio::test(start_paused = true)]
async fn half_a_message_is_not_delivered() {
    let pool = Pool::new(|seen| match seen.number {
        0 => grpc(numbers(0..2).data(framed(&[2])[..5].to_vec()).error("cut")),
        1 => grpc(numbers(2..3).data(vec![0, 0]).error("cut")),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let got = call(over(&pool), up_to(4)).await.unwrap();
    assert_eq!(got, (all(4), 0));
    assert_eq!(asked(&pool.seen()[2]), 3..4);
}

/// R4: OK inside a message is a broken stream; and so is an end without a status.
#[tokio::test(start_paused = true)]
async fn ok_inside_a_message_is_no_end() {
    let pool = Pool::new(|seen| match seen.number {
        0 => grpc(numbers(0..1).data(vec![0, 0, 0]).status(0)),
        1 => grpc(numbers(1..2)),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    assert_eq!(call(over(&pool), up_to(3)).await.unwrap(), (all(3), 0));
    assert_eq!(pool.calls(), 3);
}

/// R7: frames go up as they came, the messages in them whole.
#[tokio::test(start_paused = true)]
async fn frames_go_up_as_they_came() {
    let three = all(3);
    let pool = Pool::new(move |_| {
        let body = BodyScript::default()
            .data(three.clone())
            .data(framed(&[3])[..2].to_vec());
        grpc(body.data(framed(&[3])[2..].to_vec()).status(0))
    });
    let mut body = open(over(&pool), up_to(4)).await;
    assert!(!body.is_end_stream());
    assert_eq!(data(&mut body).await, all(3));
    // The held frame first, then the one that completes the message.
    assert_eq!(data(&mut body).await, framed(&[3])[..2]);
    assert_eq!(data(&mut body).await, framed(&[3])[2..]);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    assert!(body.frame().await.is_none());
    assert!(body.is_end_stream());
}

/// R4: what was read when the stream broke goes up before anything else is done.
#[tokio::test(start_paused = true)]
async fn what_was_read_goes_up_first() {
    let pool = Pool::new(|seen| match seen.number {
        0 => grpc(numbers(0..3).error("cut")),
        _ => None,
    });
    let mut body = open(over(&pool), up_to(4)).await;
    for number in 0..3 {
        assert_eq!(data(&mut body).await, framed(&[number]));
    }
    // Nothing is read ahead either.
    assert_eq!(pool.calls(), 1);
}

/// R1: the end of a stream all of which was delivered is OK, and nothing is sent for it.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_complete_ends_with_ok() {
    for script in [
        numbers(0..3).error("cut"),
        numbers(0..3),
        numbers(0..3).wait(),
    ] {
        let script = std::sync::Mutex::new(Some(script));
        let pool = Pool::new(move |_| grpc(script.lock().unwrap().take().expect("one call")));
        assert_eq!(call(over(&pool), up_to(3)).await.unwrap(), (all(3), 0));
        assert_eq!(pool.calls(), 1);
    }
    // Before the head, too: nothing was asked for.
    let pool = Pool::scripted([lost]);
    assert_eq!(
        call(over(&pool), up_to(0)).await.unwrap(),
        (Bytes::new(), 0)
    );
    assert_eq!(pool.calls(), 1);
}

/// R1: methods without a rule, and all methods where the layer is off, pass untouched.
#[tokio::test(start_paused = true)]
async fn other_methods_pass() {
    let cut = || Pool::scripted([|| grpc(numbers(0..1).error("cut")), good]);
    let pool = cut();
    let error = call(over(&pool), request(OTHER, &[0, 2]))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("error reading a body"),
        "{error}"
    );
    assert!(
        pool.seen()[0]
            .extensions
            .get::<steadfast_core::Attempt>()
            .is_none()
    );
    let off = cut();
    let service = over_with(&off, |config| config.enabled = false);
    call(service, up_to(2)).await.unwrap_err();
    assert_eq!((pool.calls(), off.calls()), (1, 1));
}

/// R7: where a later attempt is compressed in another way than the caller was told, messages go up unpacked.
#[cfg(feature = "gzip")]
#[tokio::test(start_paused = true)]
async fn a_later_attempt_may_be_compressed_otherwise() {
    use std::io::Write;
    let gzip = |message: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(message).unwrap();
        let mut framed = framed(&packer.finish().unwrap());
        framed[0] = 1;
        framed
    };
    let pool = Pool::new(move |seen| {
        if seen.number == 0 {
            return grpc(numbers(0..1).error("cut"));
        }
        let script = BodyScript::default()
            .data(gzip(&[1]))
            .message(&[2])
            .status(0);
        let head = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-encoding", "gzip");
        Some(Ok(head.body(body(script)).unwrap()))
    });
    assert_eq!(call(over(&pool), up_to(3)).await.unwrap(), (all(3), 0));
}

/// R4: OK in the head of a later attempt, which has no messages, is the end for a caller that has its head already.
#[tokio::test(start_paused = true)]
async fn ok_in_a_later_head_is_an_end() {
    let pool = Pool::scripted([|| grpc(numbers(0..2).error("cut")), || status(0)]);
    assert_eq!(call(over(&pool), up_to(9)).await.unwrap(), (all(2), 0));
    // As it is in the first one.
    let pool = Pool::scripted([|| status(0)]);
    assert_eq!(
        call(over(&pool), up_to(9)).await.unwrap(),
        (Bytes::new(), 0)
    );
}
