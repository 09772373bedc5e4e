//! Streams cut at seeded places.

use steadfast_lab::cuts::{self, Options, Verdict};

/// The seeds' verdicts, whatever is wrong of which is printed with its seed. `CUTS_SEED` replays one.
async fn all(mut seeds: std::ops::Range<u64>, options: Options) -> Vec<Verdict> {
    if let Ok(seed) = std::env::var("CUTS_SEED") {
        let seed = seed.parse().expect("CUTS_SEED is a number");
        seeds = seed..seed + 1;
    }
    let mut verdicts = Vec::new();
    for seed in seeds {
        let verdict = cuts::run(seed, options).await.unwrap();
        if !verdict.problem.is_empty() {
            eprintln!("seed {seed}: {}", verdict.problem);
        }
        verdicts.push(verdict);
    }
    println!("{}", cuts::table(&cuts::rows(&verdicts)));
    verdicts
}

fn assert_right(verdicts: &[Verdict]) {
    let wrong: Vec<_> = verdicts
        .iter()
        .filter(|verdict| !verdict.problem.is_empty())
        .map(|verdict| verdict.seed)
        .collect();
    assert!(
        wrong.is_empty(),
        "wrong: seeds {wrong:?}; CUTS_SEED=N replays one"
    );
    // Most cuts are such that the stream goes on.
    let resumed = verdicts.iter().filter(|verdict| verdict.resumed).count();
    assert!(
        resumed * 2 > verdicts.len(),
        "{resumed} of {}",
        verdicts.len()
    );
}

/// R2, R3, R4, R7, R8: 100 messages, cut once or twice in every way and anywhere: all of them once, in order, or a
/// prefix and an error that names the cause.
#[tokio::test(start_paused = true)]
async fn a_thousand_seeds_in_memory() {
    assert_right(&all(0..1_000, Options::PAUSED).await);
}

/// The same over sockets and in real time.
#[tokio::test]
async fn two_hundred_seeds_over_tcp() {
    assert_right(&all(0..200, Options::TCP).await);
}

#[tokio::test(start_paused = true)]
#[ignore = "a campaign of minutes: run with --ignored"]
async fn long_ten_thousand_seeds_in_memory() {
    assert_right(&all(0..10_000, Options::PAUSED).await);
}
