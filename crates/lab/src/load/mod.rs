//! The load: which reads arrive when, what became of them, and the task that sends them.
//!
//! It is an open loop: reads arrive at a fixed rate whether or not earlier ones were answered, as they do at a real service. A closed loop would stop
//! asking while a server is silent, and so hide the very calls this is about.

pub mod arrivals;
pub mod ledger;
pub(crate) mod reads;
