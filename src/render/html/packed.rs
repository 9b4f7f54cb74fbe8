//! Packed numbers of a page: columns of integers, deflated and encoded as base64.
//!
//! Every number is an LEB128 integer. The numbers of a column follow each other, since similar
//! numbers compress well. `data.js` unpacks them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Write as _};

/// Writer of columns, one after the other.
pub(super) struct PackedColumns {
    out: DeflateEncoder<Vec<u8>>,
}

impl Default for PackedColumns {
    fn default() -> Self {
        Self { out: DeflateEncoder::new(Vec::new(), Compression::new(7)) }
    }
}

impl PackedColumns {
    /// Appends one column.
    pub(super) fn put(&mut self, values: impl Iterator<Item = u64>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(1 << 16);
        for mut value in values {
            while value >= 0x80 {
                bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
            if bytes.len() >= 1 << 15 {
                self.out.write_all(&bytes)?;
                bytes.clear();
            }
        }
        self.out.write_all(&bytes)
    }

    /// Returns all columns, deflated.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        self.out.finish()
    }
}

/// Encodes bytes as text that is safe inside an HTML element.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::read::DeflateDecoder;
    use std::io::Read as _;

    /// The deflated bytes of a base64 text.
    pub(crate) fn bytes_of(base64: &str) -> Vec<u8> {
        STANDARD.decode(base64).expect("base64")
    }

    /// All numbers of the columns.
    pub(crate) fn numbers_of(base64: &str) -> Vec<u64> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&bytes_of(base64)[..]).read_to_end(&mut bytes).expect("deflated");
        let whole = |number: &[u8]| number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
        bytes.split_inclusive(|byte| byte & 0x80 == 0).map(whole).collect()
    }

    #[test]
    fn packed_columns_are_read_back_unchanged() {
        let mut columns = PackedColumns::default();
        columns.put([0, 127, 128, u64::MAX].into_iter()).expect("written");
        columns.put([5].into_iter()).expect("written");
        assert_eq!(numbers_of(&base64(&columns.finish().expect("finished"))), [0, 127, 128, u64::MAX, 5]);
    }
}
