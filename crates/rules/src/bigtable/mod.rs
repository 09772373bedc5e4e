//! BigTable: scans go on after their last row.

mod chunks;
mod ping_and_warm;
mod read_rows;
mod rows;

pub use chunks::RowTracker;
pub use ping_and_warm::PingAndWarm;
pub use read_rows::ReadRows;
