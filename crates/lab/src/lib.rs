//! The library half of `steadfast-lab`: an embedded BigTable-like server that tests can start, and the demo that compares tonic with Steadfast.
//!
//! [`server::Embedded`] serves in this process. [`demo::run`] starts helper processes of the `steadfast-lab` program and measures the contenders.

#![forbid(unsafe_code)]

mod bench;
pub mod cli;
mod clock;
mod contend;
pub mod contender;
pub mod cuts;
pub mod demo;
pub mod error;
mod helper;
pub mod load;
pub mod places;
pub mod rows;
pub mod server;
pub mod sim;
