//! One row: allocations by script, rates and CPU times in pairs.

use std::{sync::atomic::Ordering, time::Duration};

use steadfast_testkit::alloc::{self, AllocationCount};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

use super::{
    Contender, Options, Row,
    clients::connect,
    pairs::Ratio,
    work::{Call, Client, Work},
};
use crate::{
    bench::median,
    clock::{now, thread_cpu},
    error::{Error, Result},
};

/// Load before each measurement, so that all callers are at work.
const WARM_UP: Duration = Duration::from_millis(20);
/// Calls of the shorter of the two scripts in which allocations are counted: about so many, and one for each caller
/// at least.
const COUNTED: usize = 512;

/// A runtime of this thread alone, for clients.
pub(super) fn runtime() -> Result<Runtime> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::because("can't start the clients' runtime", error))
}

/// All but the instructions.
pub(super) fn row(
    uri: &str,
    (contender, call, callers): (Contender, Call, usize),
    options: &Options,
) -> Result<Row> {
    let runtime = runtime()?;
    let bare = runtime.block_on(connect(Contender::Channel, uri))?;
    let client = runtime.block_on(connect(contender, uri))?;
    let work = Work {
        call,
        frames: options.frames,
        bytes: options.bytes,
        callers,
        calls: None,
    };
    let allocations = allocations(&runtime, client.as_ref(), work)?;
    let per_frame = || {
        let frames = 2 * options.frames;
        let longer = self::allocations(&runtime, client.as_ref(), Work { frames, ..work })?;
        Ok((longer - allocations) / f64::from(options.frames))
    };
    let allocs_per_frame = (call == Call::Stream).then(per_frame).transpose()?;
    let pairs = pairs(&runtime, (client.as_ref(), bare.as_ref()), work, options)?;
    let of = |figure: fn(&Timed) -> f64| {
        Ratio::of(pairs.iter().map(|(own, bare)| (figure(own), figure(bare))))
    };
    let rate = of(|timed| timed.rate);
    let own =
        |figure: fn(&Timed) -> f64| median(pairs.iter().map(|(own, _)| figure(own)).collect());
    Ok(Row {
        contender,
        call,
        callers,
        allocs_per_call: allocations,
        allocs_per_frame,
        instructions_per_call: None,
        cpu_us_per_call: own(|timed| timed.cpu_us),
        rps: own(|timed| timed.rate),
        ratio_cpu: of(|timed| timed.cpu_us).median,
        ratio_rps: rate.median,
        ratio_low: rate.low,
        ratio_high: rate.high,
    })
}

/// The client's figures with the bare channel's beside them.
fn pairs(
    runtime: &Runtime,
    (client, bare): (&dyn Client, &dyn Client),
    work: Work,
    options: &Options,
) -> Result<Vec<(Timed, Timed)>> {
    let time = |client| runtime.block_on(time(client, work, options.length));
    let pair = |number| {
        // Who comes first changes, so that a host that gets slower favours nobody.
        if number % 2 == 0 {
            let own = time(client)?;
            Ok((own, time(bare)?))
        } else {
            let bare = time(bare)?;
            Ok((time(client)?, bare))
        }
    };
    (0..options.pairs).map(pair).collect()
}

struct Timed {
    /// Calls a second.
    rate: f64,
    /// Microseconds of this thread's CPU time for a call.
    cpu_us: f64,
}

async fn time(client: &dyn Client, work: Work, length: Duration) -> Result<Timed> {
    let load = client.begin(work);
    let calls = || load.progress.calls.load(Ordering::Relaxed);
    sleep(WARM_UP).await;
    let (began, cpu, before) = (now(), thread_cpu(), calls());
    sleep(length).await;
    let (passed, cpu, calls) = (now() - began, thread_cpu() - cpu, calls() - before);
    load.end().await?;
    let calls = calls.max(1) as f64;
    Ok(Timed {
        rate: calls / passed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / calls,
    })
}

/// Allocations of this thread for a call: what a script twice as long adds.
fn allocations(runtime: &Runtime, client: &dyn Client, work: Work) -> Result<f64> {
    let each = u32::try_from(COUNTED.div_ceil(work.callers)).unwrap_or(u32::MAX);
    let script = |calls| {
        let work = Work {
            calls: Some(calls),
            ..work
        };
        alloc::count_on_demand(true);
        let before = AllocationCount::current_thread();
        let done = runtime.block_on(async { client.begin(work).done().await });
        let made = AllocationCount::current_thread().since(before).allocations;
        alloc::count_on_demand(false);
        done.map(|()| made as f64)
    };
    // The first run also makes what stays: buffers that grow, slots that are kept.
    script(2 * each)?;
    let (shorter, longer) = (script(each)?, script(2 * each)?);
    Ok((longer - shorter) / (f64::from(each) * work.callers as f64))
}
