//! HTTP/2 as bytes: frames in and out, header blocks in and out. It knows no connection state and never panics on what a client sent.

mod frame;
mod hpack;
mod hpack_tables;

pub(crate) use frame::{
    Frame, FrameReader, Nonsense, PREFACE, data, flag, frame, goaway, header_frames, kind, rst,
    setting, settings, window_update,
};
pub(crate) use hpack::{Decoder, encode};
