//! Check of the sizes that a Parquet file claims against its bytes.
//!
//! The Parquet reader allocates as many values as a page claims, and an absurd number aborts the
//! program. The file's digest does not help: it shows only that the file belongs to its profile,
//! whoever made both.

use polars::prelude::{ArrowDataType, FileMetadataRef, ParquetReader, PolarsResult, SerReader};
use polars_parquet_format::thrift::protocol::TCompactInputProtocol;
use polars_parquet_format::{PageHeader, PageType};
use std::io::Cursor;
use std::ops::Range;

/// Maximum of an uncompressed page. This program writes pages of about 1 MiB.
const MAX_PAGE_BYTES: usize = 1 << 26;

/// The metadata of a file, if all columns have types that this program writes, and a value for each
/// row.
pub(super) fn valid_metadata(bytes: &[u8]) -> PolarsResult<Option<FileMetadataRef>> {
    use ArrowDataType::{Float64, Int64, UInt32, UInt64, Utf8View};
    let mut reader = ParquetReader::new(Cursor::new(bytes));
    if !reader.schema()?.iter_values().all(|field| matches!(field.dtype, Float64 | Int64 | UInt32 | UInt64 | Utf8View))
    {
        return Ok(None);
    }
    let metadata = reader.get_metadata()?.clone();
    let groups = &metadata.row_groups;
    let rows = groups.iter().try_fold(0usize, |sum, group| sum.checked_add(group.num_rows()));
    // A written row takes more than two bytes, even if all rows are equal.
    let is_plausible = rows.is_some_and(|rows| rows == metadata.num_rows && rows <= bytes.len());
    let is_valid = is_plausible
        && groups.iter().all(|group| {
            let rows = group.num_rows();
            group.parquet_columns().iter().all(|column| {
                let pages = part(bytes, column.byte_range());
                usize::try_from(column.num_values()) == Ok(rows)
                    && pages.is_some_and(|pages| pages_are_consistent(pages, rows))
            })
        });
    Ok(is_valid.then_some(metadata))
}

fn part(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// True if the pages of a column in a row group have a value or a null for each row. Source:
/// parquet.thrift of apache/parquet-format.
fn pages_are_consistent(mut pages: &[u8], rows: usize) -> bool {
    let mut left = rows;
    while !pages.is_empty() {
        let most_bytes = pages.len();
        let header = PageHeader::read_from_in_protocol(&mut TCompactInputProtocol::new(&mut pages, most_bytes));
        match header.ok().and_then(|header| checked_page_size(&header, pages.len(), left)) {
            Some((values, packed_bytes)) => {
                left -= values;
                pages = &pages[packed_bytes..];
            }
            None => return false,
        }
    }
    left == 0
}

/// Rows and compressed bytes of a page, if neither exceeds the rest of the column.
fn checked_page_size(header: &PageHeader, left_bytes: usize, left_rows: usize) -> Option<(usize, usize)> {
    let packed_bytes = usize::try_from(header.compressed_page_size).ok().filter(|&bytes| bytes <= left_bytes)?;
    let page_bytes = usize::try_from(header.uncompressed_page_size).ok().filter(|&bytes| bytes <= MAX_PAGE_BYTES)?;
    let (claimed, most, rows_each) = match header.type_ {
        PageType::DICTIONARY_PAGE => (header.dictionary_page_header.as_ref()?.num_values, page_bytes, 0),
        PageType::DATA_PAGE => (header.data_page_header.as_ref()?.num_values, left_rows, 1),
        PageType::DATA_PAGE_V2 => (header.data_page_header_v2.as_ref()?.num_values, left_rows, 1),
        _ => return None,
    };
    let values = usize::try_from(claimed).ok().filter(|&values| values <= most)?;
    Some((values * rows_each, packed_bytes))
}

#[cfg(test)]
mod tests {
    use super::super::decode::TableFile;
    use super::super::{ProfileError, encode};
    use super::*;
    use crate::model::column::ColumnUnit::Bytes;
    use crate::model::table::Table;
    use polars_parquet_format::thrift::protocol::TCompactOutputProtocol;
    use std::path::Path;

    /// Three rows; one has no value.
    fn written(path: &Path) -> Vec<u8> {
        let table = Table::new("some.parquet").column("bytes", Bytes, "some bytes", |row: &Option<u64>| *row);
        encode::bytes(path, [[Some(7), None, Some(9)]].iter(), &table).unwrap()
    }

    fn values(path: &Path, bytes: Vec<u8>) -> Result<Vec<Option<u64>>, ProfileError> {
        TableFile::open(path, bytes)?.read(|table| table.u64("bytes"))
    }

    /// The header of the first page of a type, and its byte range.
    fn header(bytes: &[u8], wanted: PageType) -> (PageHeader, Range<usize>) {
        let mut start = "PAR1".len();
        loop {
            let mut rest = &bytes[start..];
            let mut protocol = TCompactInputProtocol::new(&mut rest, bytes.len());
            let header = PageHeader::read_from_in_protocol(&mut protocol).unwrap();
            let end = bytes.len() - rest.len();
            if header.type_ == wanted {
                return (header, start..end);
            }
            start = end + header.compressed_page_size as usize;
        }
    }

    /// The file with this header replaced by one of the same length.
    fn with_header(bytes: &[u8], was: &Range<usize>, header: &PageHeader) -> Vec<u8> {
        let mut changed = Vec::new();
        header.write_to_out_protocol(&mut TCompactOutputProtocol::new(&mut changed)).unwrap();
        assert_eq!(changed.len(), was.len());
        [&bytes[..was.start], &changed, &bytes[was.end..]].concat()
    }

    #[test]
    fn pages_with_wrong_row_counts_are_rejected() {
        let path = Path::new("some.parquet");
        let bytes = written(path);
        let (data, place) = header(&bytes, PageType::DATA_PAGE);
        let same = with_header(&bytes, &place, &data);
        assert_eq!(same, bytes);
        assert_eq!(values(path, same).unwrap(), [Some(7), None, Some(9)]);
        // The reader turns -1 into the largest number, and allocates a bit for each.
        for claim in [-1, 0, 2, 4, -64] {
            let mut data = data.clone();
            data.data_page_header.as_mut().unwrap().num_values = claim;
            let error = values(path, with_header(&bytes, &place, &data)).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("some.parquet")), "{claim}");
        }
        let (dictionary, place) = header(&bytes, PageType::DICTIONARY_PAGE);
        for claim in [-1, 63] {
            let mut dictionary = dictionary.clone();
            dictionary.dictionary_page_header.as_mut().unwrap().num_values = claim;
            assert!(values(path, with_header(&bytes, &place, &dictionary)).is_err(), "{claim}");
        }
    }

    #[test]
    fn pages_beyond_the_remaining_rows_or_bytes_are_rejected() {
        let (data, _) = header(&written(Path::new("some.parquet")), PageType::DATA_PAGE);
        let packed = data.compressed_page_size as usize;
        assert_eq!(checked_page_size(&data, packed, 3), Some((3, packed)));
        assert_eq!(checked_page_size(&data, packed - 1, 3), None);
        assert_eq!(checked_page_size(&data, packed, 2), None);
        for size in [i32::MIN, -1, i32::MAX] {
            let unpacked = PageHeader { uncompressed_page_size: size, ..data.clone() };
            let packed_as = PageHeader { compressed_page_size: size, ..data.clone() };
            assert_eq!([checked_page_size(&unpacked, packed, 3), checked_page_size(&packed_as, packed, 3)], [None; 2]);
        }
    }
}
