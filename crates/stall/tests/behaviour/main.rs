//! The layer on channels in memory, on a paused clock.

mod common;
mod pacemaker;
mod probes;
mod quarantine;
mod ring;
mod silence;
