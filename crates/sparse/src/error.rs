//! The errors that the layer makes itself: each a `tonic::Status` whose source is the local mark.

use std::{any::Any, time::Duration};

use steadfast_classify::local_status;
use steadfast_core::{BoxError, LocalKind};

use crate::{Bound, SparseConfig};

/// The metadata by which gRPC clients are told when to try again, in whole milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// 2^32 divided by the golden ratio: multiples of it spread evenly over the range of a `u32`.
const GOLDEN: u32 = 0x9e37_79b9;

/// The call would have to wait, and a bound is reached. `number` tells refusals apart.
pub(crate) fn full(config: &SparseConfig, bound: Bound, number: u32) -> BoxError {
    let SparseConfig { name, places, .. } = config;
    let message = match bound {
        Bound::Flow => format!(
            "all {places} places of {name:?} are taken, and {} calls of this flow wait already",
            config.max_waiting_per_flow
        ),
        Bound::Total => format!(
            "all {places} places of {name:?} are taken, and {} calls wait already",
            config.max_waiting
        ),
    };
    overload(config, message, number)
}

/// The call waited as long as a call may.
pub(crate) fn waited(config: &SparseConfig, limit: Duration, number: u32) -> BoxError {
    let SparseConfig { name, places, .. } = config;
    let message = format!("none of the {places} places of {name:?} was free within {limit:?}");
    overload(config, message, number)
}

fn overload(config: &SparseConfig, message: String, number: u32) -> BoxError {
    let mut status = local_status(LocalKind::Overload, message, None);
    let millis = spread(config.pushback, number).as_millis();
    let millis = i32::try_from(millis).unwrap_or(i32::MAX).max(1);
    status.metadata_mut().insert(PUSHBACK, millis.into());
    Box::new(status)
}

/// From half to one and a half of `time`, different from one number to the next.
fn spread(time: Duration, number: u32) -> Duration {
    let share = f64::from(number.wrapping_mul(GOLDEN)) / f64::from(u32::MAX);
    time.mul_f64(0.5 + share)
}

/// The caller's deadline passed while the call waited.
pub(crate) fn too_late(config: &SparseConfig, waited: Duration) -> BoxError {
    let name = &config.name;
    let message = format!(
        "the deadline passed after {waited:?} while the call waited for a place of {name:?}"
    );
    Box::new(local_status(LocalKind::Deadline, message, None))
}

/// The key's function panicked.
pub(crate) fn no_key(config: &SparseConfig, panic: &(dyn Any + Send)) -> BoxError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref().map(String::as_str));
    let name = &config.name;
    let message = format!(
        "the key of {name:?} panicked: {}",
        text.unwrap_or("no message")
    );
    Box::new(local_status(LocalKind::Panicked, message, None))
}
