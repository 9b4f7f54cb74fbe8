//! The error type of this crate: the layer that failed, its byte offset and the reason.

use crate::layer::Layer;
use core::fmt;

/// A failed parse.
///
/// `offset` counts bytes from the start of the slice passed to the *outermost* parser: a parser
/// that calls another one on a sub-slice adds its own position with [`ParseError::add_offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Header or record that could not be read.
    pub layer: Layer,
    /// Bytes from the start of the outermost slice to the start of the failed layer.
    pub offset: usize,
    /// Reason.
    pub kind: ErrorKind,
}

/// Reason why a parse failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The input ends before the layer does.
    Truncated {
        /// Bytes that the layer needs, from the layer's start.
        needed: usize,
        /// Bytes available, from the layer's start.
        available: usize,
    },
    /// A field holds a value that the format does not allow.
    Invalid {
        /// Field name as written in the specification of the format.
        field: &'static str,
        /// Value found.
        value: u64,
    },
}

impl ParseError {
    /// `layer` needs `needed` bytes, but the input has only `available`.
    #[must_use]
    pub const fn truncated(layer: Layer, needed: usize, available: usize) -> Self {
        Self { layer, offset: 0, kind: ErrorKind::Truncated { needed, available } }
    }

    /// `field` of `layer` holds a value that the format does not allow.
    #[must_use]
    pub const fn invalid(layer: Layer, field: &'static str, value: u64) -> Self {
        Self { layer, offset: 0, kind: ErrorKind::Invalid { field, value } }
    }

    /// Rebases the error to a slice that starts `bytes` earlier.
    #[must_use]
    pub const fn add_offset(mut self, bytes: usize) -> Self {
        self.offset += bytes;
        self
    }

    /// True if more input could have let the parse succeed.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        matches!(self.kind, ErrorKind::Truncated { .. })
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::Truncated { needed, available } => write!(
                f,
                "{} at byte {} is truncated: {needed} bytes needed, {available} available",
                self.layer, self.offset
            ),
            ErrorKind::Invalid { field, value } => {
                write!(f, "{} at byte {} is invalid: {field} is {value:#x}", self.layer, self.offset)
            }
        }
    }
}

impl core::error::Error for ParseError {}

/// The first `N` bytes of `input`, or a `Truncated` error for `layer`.
pub(crate) fn take<const N: usize>(input: &[u8], layer: Layer) -> Result<&[u8; N], ParseError> {
    input.first_chunk::<N>().ok_or(ParseError::truncated(layer, N, input.len()))
}
