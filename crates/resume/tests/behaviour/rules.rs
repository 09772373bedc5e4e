//! What a rule says, and what is done when it fails.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use steadfast_testkit::body::BodyScript;
use tonic::{Code, Status};

use super::{support::*, *};

/// A rule of closures.
struct Says<B, M, R> {
    begin: B,
    message: M,
    rest: R,
}

struct Saying<M, R>(M, R);

impl<B, M, R> Rule for Says<B, M, R>
where
    B: Fn() -> Result<(), BoxError> + Send + Sync + 'static,
    M: Fn(&[u8]) -> Result<Pass, BoxError> + Clone + Send + Sync + 'static,
    R: Fn() -> Result<Rest, BoxError> + Clone + Send + Sync + 'static,
{
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        (self.begin)()?;
        Ok(Box::new(Saying(self.message.clone(), self.rest.clone())))
    }
}

impl<M, R> Progress for Saying<M, R>
where
    M: Fn(&[u8]) -> Result<Pass, BoxError> + Send,
    R: Fn() -> Result<Rest, BoxError> + Send,
{
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        (self.0)(message)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        (self.1)()
    }
}

fn ruled(pool: &Pool, rule: impl Rule) -> ResumableStream<Pool> {
    let layer = ResumableStreamLayer::default().rule(rule).unwrap();
    layer.layer(pool.clone())
}

fn as_is(_: &[u8]) -> Result<Pass, BoxError> {
    Ok(Pass::AsIs)
}

/// The caller's error: a status.
async fn fails(service: ResumableStream<Pool>) -> Status {
    let error = call(service, up_to(9)).await.unwrap_err();
    *error.downcast().expect("a status")
}

/// R1, R8: a rule that errs or panics on the request ends that call; nothing is sent.
#[tokio::test(start_paused = true)]
async fn a_rule_that_cannot_begin_ends_the_call() {
    for panics in [false, true] {
        let pool = Pool::scripted([good]);
        let begin = move || match panics {
            true => panic!("out of paper"),
            false => Err("out of paper".into()),
        };
        let rest = || Ok(Rest::Complete);
        let rule = Says {
            begin,
            message: as_is,
            rest,
        };
        let error = fails(ruled(&pool, rule)).await;
        assert_eq!(error.code(), Code::Internal);
        let text = error.message();
        assert!(
            text.contains(STREAM) && text.contains("out of paper"),
            "{text}"
        );
        assert_eq!(text.contains("panicked"), panics, "{text}");
        assert_eq!(pool.calls(), 0);
    }
}

/// R8: a rule that errs or panics on a message ends that stream after the messages before it; another stream goes on.
#[tokio::test(start_paused = true)]
async fn a_rule_that_cannot_read_a_message_ends_its_stream() {
    for panics in [false, true] {
        let pool = Pool::new(|_| grpc(numbers(0..3).status(0)));
        let message = move |message: &[u8]| match (message, panics) {
            ([1], true) => panic!("out of paper"),
            ([1], false) => Err("out of paper".into()),
            _ => Ok(Pass::AsIs),
        };
        let rest = || Ok(Rest::Complete);
        let service = ruled(
            &pool,
            Says {
                begin: || Ok(()),
                message,
                rest,
            },
        );
        let mut one = open(service.clone(), up_to(3)).await;
        let mut other = open(service, up_to(3)).await;
        for body in [&mut one, &mut other] {
            assert_eq!(data(body).await, framed(&[0]));
            let error = body.frame().await.unwrap().unwrap_err();
            let error = error.downcast::<Status>().unwrap();
            assert_eq!(error.code(), Code::Internal);
            let text = error.message();
            assert!(
                text.contains("out of paper") && text.contains(STREAM),
                "{text}"
            );
            assert_eq!(text.contains("panicked"), panics);
            assert!(body.frame().await.is_none());
        }
        assert_eq!(pool.calls(), 2);
    }
}

/// R1: why a stream can't go on is in its error, with what broke it.
#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_go_on_says_why() {
    type Rests = fn() -> Result<Rest, BoxError>;
    let rests: [Rests; 4] = [
        || Ok(Rest::cannot("no token was given")),
        || Err("no token was given".into()),
        || panic!("no token was given"),
        || {
            let requests = vec!["no token was given".into(), Bytes::new()];
            Ok(Rest::Send {
                requests,
                first: Vec::new(),
            })
        },
    ];
    for (number, rest) in rests.into_iter().enumerate() {
        let pool = Pool::scripted([|| grpc(numbers(0..1).error("cut"))]);
        let error = fails(ruled(
            &pool,
            Says {
                begin: || Ok(()),
                message: as_is,
                rest,
            },
        ))
        .await;
        let text = error.message();
        let reason = if number < 3 {
            "no token was given"
        } else {
            "2 requests"
        };
        assert!(text.contains(reason) && text.contains("cut"), "{text}");
        // The code is that of the failure.
        assert_eq!(error.code(), Code::Unavailable, "{text}");
        assert_eq!(pool.calls(), 1);
    }
}

/// R1: a rule can replace messages, leave some out, and give the caller some before the next attempt's.
#[tokio::test(start_paused = true)]
async fn messages_are_replaced_withheld_and_put_first() {
    let pool = Pool::new(|seen| match seen.number {
        0 => grpc(numbers(0..3).data(framed(&[3])[..1].to_vec()).error("cut")),
        _ => grpc(BodyScript::default().data(all(3)).status(0)),
    });
    let message = |message: &[u8]| {
        Ok(match message {
            [1] => Pass::Withhold,
            [2] => Pass::Instead(Bytes::from_static(b"two")),
            _ => Pass::AsIs,
        })
    };
    let rest = || {
        let (requests, first) = (vec!["again".into()], vec!["first".into()]);
        Ok(Rest::Send { requests, first })
    };
    let got = call(
        ruled(
            &pool,
            Says {
                begin: || Ok(()),
                message,
                rest,
            },
        ),
        up_to(9),
    )
    .await;
    let once = [framed(&[0]), framed(b"two")].concat();
    let expected = [&once[..], &framed(b"first"), &once].concat();
    assert_eq!(got.unwrap(), (expected.into(), 0));
    assert_eq!(pool.seen()[1].body, framed(b"again"));
}

/// R1: a rule's method that is none is an error when the layer is built, and the second rule of a method holds.
#[tokio::test(start_paused = true)]
async fn methods_are_checked_when_the_layer_is_built() {
    struct Bad;
    impl Rule for Bad {
        fn method(&self) -> &str {
            "shop.Orders/List"
        }
        fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
            unreachable!("it has no method")
        }
    }
    let error = ResumableStreamLayer::default().rule(Bad).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("resume.rule") && text.contains("shop.Orders/List"),
        "{text}"
    );

    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let begin = || {
        BEGUN.fetch_add(1, Relaxed);
        Ok(())
    };
    let rest = || Ok(Rest::Complete);
    let twice = layer(|_| {})
        .rule(Says {
            begin,
            message: as_is,
            rest,
        })
        .unwrap();
    let pool = Pool::scripted([good]);
    call(twice.layer(pool), up_to(1)).await.unwrap();
    assert_eq!((BEGUN.load(Relaxed), twice.snapshot().rules.len()), (1, 1));
}

/// R4: a stream that isn't whole by its rule's own count, though it ended with OK, ends with an error.
#[tokio::test(start_paused = true)]
async fn a_rule_can_say_that_an_end_is_none() {
    struct Whole(u8);
    impl Rule for Whole {
        fn method(&self) -> &str {
            STREAM
        }
        fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
            Ok(Box::new(Self(0)))
        }
    }
    impl Progress for Whole {
        fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
            self.0 += 1;
            Ok(Pass::AsIs)
        }
        fn end(&mut self) -> Result<(), BoxError> {
            match self.0 {
                0 => panic!("not one"),
                1 => Err("one is half of it".into()),
                _ => Ok(()),
            }
        }
        fn rest(&mut self) -> Result<Rest, BoxError> {
            Ok(Rest::Complete)
        }
    }
    for (messages, says) in [
        (0, "panicked: not one"),
        (1, "isn't whole: one is half of it"),
        (2, ""),
    ] {
        let pool = Pool::new(move |_| grpc(numbers(0..messages).status(0)));
        let got = call(ruled(&pool, Whole(0)), up_to(2)).await;
        match got {
            Ok(got) => assert_eq!((got, says), ((all(2), 0), "")),
            Err(error) => {
                assert!(
                    !says.is_empty() && error.to_string().contains(says),
                    "{error}"
                );
            }
        }
    }
}
