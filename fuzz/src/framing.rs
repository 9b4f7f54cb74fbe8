//! Bytes as a capture file: pcap and pcapng walked, positions of classic files judged, and the ERF header.

use ibscope_parsers::ErrorKind;
use ibscope_parsers::frame::boundary::{Probe, Verdict};
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::frame::{Framing, Item};

/// Longest file whose positions are all judged.
const MOST_JUDGED_BYTES: usize = 2048;

/// Record by record and all at once: the same items, and a stop that asks for more than is there.
///
/// # Panics
/// Where they differ.
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
                if let Item::Record(record) = item {
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
    let Some(probe) = probe.filter(|_| bytes.len() <= MOST_JUDGED_BYTES) else { return };
    let first = probe.find(bytes);
    let judged = (0..bytes.len()).find(|&at| probe.judge(&bytes[at..]) == Verdict::Start);
    assert_eq!(first, judged);
}
