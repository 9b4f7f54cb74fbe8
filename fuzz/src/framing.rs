//! Target `framing`: the bytes are a pcap or pcapng file, positions in it, and an ERF header.

use ibscope_parsers::ErrorKind;
use ibscope_parsers::frame::boundary::{Probe, RecordBoundary};
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::frame::{CaptureItem, Framing};

/// Longest file whose positions are all classified.
const MAX_JUDGED_BYTES: usize = 2048;

/// Walks the file record by record and at once. Both must yield the same items and the same error;
/// a `Truncated` error must ask for more bytes than there are.
///
/// # Panics
/// If the walks differ.
pub fn run(bytes: &[u8]) {
    if let Ok(header) = ErfHeader::parse(bytes) {
        let _ = (header.timestamp_ns(), header.ibdump_time_ns());
    }
    let Ok((mut framing, mut at)) = Framing::detect(bytes) else { return };
    let mut together = framing.clone();
    let (start, mut items, mut probe) = (at, 0_usize, None);
    let mut starts = Vec::new();
    let stop = loop {
        if at == bytes.len() {
            break None;
        }
        match framing.next(&bytes[at..]) {
            Ok((item, length)) => {
                assert!(length > 0 && length <= bytes.len() - at);
                if let CaptureItem::Record(record) = item {
                    assert!(record.original_bytes as usize >= record.data.len());
                    assert!(framing.interfaces().get(record.interface as usize).is_some());
                    probe = probe.or_else(|| Probe::new(&framing, &record));
                    starts.push(at);
                }
                (items, at) = (items + 1, at + length);
            }
            Err(error) => {
                if let ErrorKind::Truncated { needed, available } = error.kind {
                    assert!(needed > available && available == bytes.len() - at);
                }
                break Some(error);
            }
        }
    };
    let mut counted = 0;
    let walked = together.walk(&bytes[start..], |_| counted += 1);
    assert_eq!((walked, counted), ((at - start, stop), items));
    let Some(probe) = probe.filter(|_| bytes.len() <= MAX_JUDGED_BYTES) else { return };
    let first = probe.find(bytes);
    let judged = (0..bytes.len()).find(|&at| probe.classify(&bytes[at..]) == RecordBoundary::Start);
    assert_eq!(first, judged);
}
