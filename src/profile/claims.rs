//! What a Parquet file says of its own sizes, held against its bytes. Its reader makes room for as many values as a page claims, and asks for more
//! memory than there is where the number is absurd, which ends the program. A file's digest says only that it stood there when the profile was put
//! together, by whomever.

use polars::prelude::{ArrowDataType, ParquetReader, PolarsResult, SerReader};
use polars_parquet_format::thrift::protocol::TCompactInputProtocol;
use polars_parquet_format::{PageHeader, PageType};
use std::io::Cursor;
use std::ops::Range;

/// Of a page, unpacked. What is written here splits columns into pages of about 1 MiB.
const MOST_PAGE_BYTES: usize = 1 << 26;

/// The columns are of the types that are written here, and have a value for each row.
pub(super) fn hold(bytes: &[u8]) -> PolarsResult<bool> {
    use ArrowDataType::{Int64, UInt32, UInt64, Utf8View};
    let mut reader = ParquetReader::new(Cursor::new(bytes));
    if !reader.schema()?.iter_values().all(|field| matches!(field.dtype, Int64 | UInt32 | UInt64 | Utf8View)) {
        return Ok(false);
    }
    let metadata = reader.get_metadata()?;
    let groups = &metadata.row_groups;
    let rows = groups.iter().try_fold(0usize, |sum, group| sum.checked_add(group.num_rows()));
    // A row of those that are written takes more than two bytes, however alike rows are.
    let are_few = rows.is_some_and(|rows| rows == metadata.num_rows && rows <= bytes.len());
    Ok(are_few
        && groups.iter().all(|group| {
            let rows = group.num_rows();
            group.parquet_columns().iter().all(|column| {
                let pages = part(bytes, column.byte_range());
                usize::try_from(column.num_values()) == Ok(rows) && pages.is_some_and(|pages| pages_fit(pages, rows))
            })
        }))
}

fn part(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// The pages of a column in a group of rows have a value, or the lack of one, for each row. Source: parquet.thrift of apache/parquet-format.
fn pages_fit(mut pages: &[u8], rows: usize) -> bool {
    let mut left = rows;
    while !pages.is_empty() {
        let most_bytes = pages.len();
        let header = PageHeader::read_from_in_protocol(&mut TCompactInputProtocol::new(&mut pages, most_bytes));
        match header.ok().and_then(|header| page_fits(&header, pages.len(), left)) {
            Some((values, packed_bytes)) => {
                left -= values;
                pages = &pages[packed_bytes..];
            }
            None => return false,
        }
    }
    left == 0
}

/// Rows and packed bytes of a page, if there are as many as it claims.
fn page_fits(header: &PageHeader, left_bytes: usize, left_rows: usize) -> Option<(usize, usize)> {
    let packed_bytes = usize::try_from(header.compressed_page_size).ok().filter(|&bytes| bytes <= left_bytes)?;
    let page_bytes = usize::try_from(header.uncompressed_page_size).ok().filter(|&bytes| bytes <= MOST_PAGE_BYTES)?;
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
    use super::super::tables::{self, Table, column};
    use super::*;
    use polars::prelude::{Column, DataFrame, NamedFrom, Series};
    use polars_parquet_format::thrift::protocol::TCompactOutputProtocol;
    use std::path::Path;

    /// Three rows, of which one has no value.
    fn written(path: &Path) -> Vec<u8> {
        let table =
            |rows: &[Option<u64>]| DataFrame::new(rows.len(), vec![column!(rows, "bytes", Option<u64>, |row| *row)]);
        tables::bytes(path, [[Some(7), None, Some(9)]].iter(), table).unwrap()
    }

    /// The header of the first page of a type, and where it stands.
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

    /// The file with that header exchanged for one of the same length.
    fn exchanged(bytes: &[u8], was: &Range<usize>, header: &PageHeader) -> Vec<u8> {
        let mut changed = Vec::new();
        header.write_to_out_protocol(&mut TCompactOutputProtocol::new(&mut changed)).unwrap();
        assert_eq!(changed.len(), was.len());
        [&bytes[..was.start], &changed, &bytes[was.end..]].concat()
    }

    #[test]
    fn a_page_that_claims_other_rows_than_the_file_is_not_read() {
        let path = Path::new("some.parquet");
        let bytes = written(path);
        let (data, place) = header(&bytes, PageType::DATA_PAGE);
        let same = exchanged(&bytes, &place, &data);
        assert_eq!(same, bytes);
        assert_eq!(Table::open(path, same).unwrap().u64("bytes").unwrap(), [Some(7), None, Some(9)]);
        // Of -1 the reader makes the largest number there is, and asks for a bit for each.
        for claim in [-1, 0, 2, 4, -64] {
            let mut data = data.clone();
            data.data_page_header.as_mut().unwrap().num_values = claim;
            let error = Table::open(path, exchanged(&bytes, &place, &data)).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("some.parquet")), "{claim}");
        }
        let (dictionary, place) = header(&bytes, PageType::DICTIONARY_PAGE);
        for claim in [-1, 63] {
            let mut dictionary = dictionary.clone();
            dictionary.dictionary_page_header.as_mut().unwrap().num_values = claim;
            assert!(Table::open(path, exchanged(&bytes, &place, &dictionary)).is_err(), "{claim}");
        }
    }

    #[test]
    fn no_page_claims_more_than_is_left() {
        let (data, _) = header(&written(Path::new("some.parquet")), PageType::DATA_PAGE);
        let packed = data.compressed_page_size as usize;
        assert_eq!(page_fits(&data, packed, 3), Some((3, packed)));
        assert_eq!(page_fits(&data, packed - 1, 3), None);
        assert_eq!(page_fits(&data, packed, 2), None);
        for size in [i32::MIN, -1, i32::MAX] {
            let unpacked = PageHeader { uncompressed_page_size: size, ..data.clone() };
            let packed_as = PageHeader { compressed_page_size: size, ..data.clone() };
            assert_eq!([page_fits(&unpacked, packed, 3), page_fits(&packed_as, packed, 3)], [None; 2]);
        }
    }
}
