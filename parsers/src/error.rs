//! The one error of this crate: which layer stopped, at which byte, and why.

use crate::layer::Layer;
use core::fmt;

/// A parse that stopped. `offset` counts bytes from the start of the slice that the *outermost* parser was
/// given: every parser that hands a sub-slice on adds its own position with [`ParseError::add_offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The header or record that could not be read.
    pub layer: Layer,
    /// Bytes from the start of the outermost slice to the start of the part that failed.
    pub offset: usize,
    /// What was wrong with it.
    pub kind: ErrorKind,
}

/// Why a parse stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes end before the layer does.
    Truncated {
        /// Bytes that the layer needs, from its own start.
        needed: usize,
        /// Bytes that are there, from its own start.
        available: usize,
    },
    /// A field holds a value that the format does not allow.
    Invalid {
        /// Name of the field as the format's document writes it.
        field: &'static str,
        /// The value found.
        value: u64,
    },
}

impl ParseError {
    /// A layer that needs `needed` bytes where only `available` are there.
    #[must_use]
    pub const fn truncated(layer: Layer, needed: usize, available: usize) -> Self {
        Self { layer, offset: 0, kind: ErrorKind::Truncated { needed, available } }
    }

    /// A field of `layer` with a value that is not allowed.
    #[must_use]
    pub const fn invalid(layer: Layer, field: &'static str, value: u64) -> Self {
        Self { layer, offset: 0, kind: ErrorKind::Invalid { field, value } }
    }

    /// The same error seen from a slice that starts `bytes` earlier.
    #[must_use]
    pub const fn add_offset(mut self, bytes: usize) -> Self {
        self.offset += bytes;
        self
    }

    /// True when more bytes could have helped.
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
                "{} at byte {} is cut short: {needed} bytes needed, {available} there",
                self.layer, self.offset
            ),
            ErrorKind::Invalid { field, value } => {
                write!(f, "{} at byte {} has an impossible {field}: {value:#x}", self.layer, self.offset)
            }
        }
    }
}

impl core::error::Error for ParseError {}

/// The first `N` bytes of `input`, or how many are missing for `layer`.
pub(crate) fn take<const N: usize>(input: &[u8], layer: Layer) -> Result<&[u8; N], ParseError> {
    input.first_chunk::<N>().ok_or(ParseError::truncated(layer, N, input.len()))
}
