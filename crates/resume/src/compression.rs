//! How messages are compressed, and how they are read in spite of it.

use std::io;

use http::{HeaderMap, HeaderName, HeaderValue};

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The compression that a head tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compression {
    #[default]
    None,
    #[cfg(feature = "gzip")]
    Gzip,
    #[cfg(feature = "deflate")]
    Deflate,
    #[cfg(feature = "zstd")]
    Zstd,
    /// One that this build can't read.
    Other(HeaderValue),
}

impl Compression {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(GRPC_ENCODING) else {
            return Self::None;
        };
        match value.as_bytes() {
            b"identity" => Self::None,
            #[cfg(feature = "gzip")]
            b"gzip" => Self::Gzip,
            #[cfg(feature = "deflate")]
            b"deflate" => Self::Deflate,
            #[cfg(feature = "zstd")]
            b"zstd" => Self::Zstd,
            _ => Self::Other(value.clone()),
        }
    }

    /// Unpacks one message into `into`, which is emptied first: at most `limit` bytes and one more, by which
    /// it is seen to be too large.
    #[cfg_attr(
        not(any(feature = "gzip", feature = "deflate", feature = "zstd")),
        expect(unused_variables, reason = "there is nothing to unpack with")
    )]
    pub(crate) fn unpack(&self, packed: &[u8], limit: usize, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        let most = (limit as u64).saturating_add(1);
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => read(flate2::read::GzDecoder::new(packed), most, into),
            #[cfg(feature = "deflate")]
            Self::Deflate => read(flate2::read::ZlibDecoder::new(packed), most, into),
            #[cfg(feature = "zstd")]
            Self::Zstd => read(zstd::stream::read::Decoder::new(packed)?, most, into),
            Self::None => Err(io::Error::other("the head names no compression")),
            Self::Other(name) => Err(io::Error::other(format!(
                "this build can't read grpc-encoding {name:?}: see the features of steadfast-resume"
            ))),
        }
    }
}

#[cfg(any(feature = "gzip", feature = "deflate", feature = "zstd"))]
fn read(from: impl io::Read, most: u64, into: &mut Vec<u8>) -> io::Result<()> {
    use io::Read;
    from.take(most).read_to_end(into).map(|_| ())
}
