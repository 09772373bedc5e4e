//! BigTable: [`ReadRows`] goes on where it broke, [`PingAndWarm`] asks and warms a channel.

mod chunks;
mod ping;
mod read_rows;
mod rows;

pub use chunks::{ChunkError, Chunks};
pub use ping::PingAndWarm;
pub use read_rows::ReadRows;
