//! Guesses whether a byte position in a classic pcap file starts a record, so that several threads
//! can read one file.
//!
//! Records have no magic number. A position counts as a start if a plausible header there leads to
//! further plausible headers. Payload can imitate such a chain (a job may send a capture file), so
//! the caller must verify each split: the records before it must end exactly there.

use super::pcap::Pcap;
use super::{Framing, Record};

/// Allowed distance of a header's timestamp from the reference record: 30 days.
const WINDOW_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// Plausible headers in a row that make a start. In random bytes, each of them passes with a
/// probability below 10^-8.
pub const CHAIN_RECORDS: usize = 4;

/// Classification of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordBoundary {
    /// [`CHAIN_RECORDS`] plausible records follow each other from this position.
    Start,
    /// No record starts here.
    NotStart,
    /// The position is plausible so far, but the input ends within or right after this many
    /// records.
    Undecided {
        /// Complete plausible records from the position on.
        records: usize,
    },
}

/// Classifies positions of one file.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pcap: Pcap,
    reference_ns: i64,
}

impl Probe {
    /// Creates a probe for the file that contains `reference`, normally its first record. `None`
    /// for pcapng and for a record without timestamp.
    #[must_use]
    pub const fn new(framing: &Framing, reference: &Record<'_>) -> Option<Self> {
        match (framing, reference.time_ns) {
            (Framing::Pcap(pcap), Some(reference_ns)) => Some(Self { pcap: *pcap, reference_ns }),
            _ => None,
        }
    }

    /// Classifies the first byte of `input`.
    #[must_use]
    pub fn classify(&self, mut input: &[u8]) -> RecordBoundary {
        for records in 0..CHAIN_RECORDS {
            let Some(header) = self.pcap.header(input) else {
                return RecordBoundary::Undecided { records };
            };
            let time_ns = self.pcap.time_ns(header);
            // Reject empty records: zeros, the most common payload, would form an endless chain of
            // them.
            let plausible = header.incl_len > 0
                && header.incl_len as usize <= Framing::MAX_RECORD_BYTES
                && header.orig_len >= header.incl_len
                && header.orig_len as usize <= Framing::MAX_RECORD_BYTES
                && header.fraction < self.pcap.fractions_per_second()
                && time_ns.abs_diff(self.reference_ns) <= WINDOW_NS;
            if !plausible {
                return RecordBoundary::NotStart;
            }
            let length = self.pcap.record_header_bytes() + header.incl_len as usize;
            let Some(rest) = input.get(length..) else {
                return RecordBoundary::Undecided { records };
            };
            input = rest;
        }
        RecordBoundary::Start
    }

    /// Offset of the first position in `input` that is classified as a start.
    #[must_use]
    pub fn find(&self, input: &[u8]) -> Option<usize> {
        (0..input.len()).find(|&at| input.get(at..).is_some_and(|rest| self.classify(rest) == RecordBoundary::Start))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LinkType;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const SECONDS: u32 = 1_700_000_000;

    fn probe() -> Probe {
        let header = [0xA1B2_C3D4_u32, 0, 0, 0, 65535, 247].map(u32::to_le_bytes).concat();
        let (framing, _) = Framing::detect(&header).unwrap();
        let reference = Record {
            time_ns: Some(i64::from(SECONDS) * 1_000_000_000),
            link_type: LinkType::INFINIBAND,
            interface: 0,
            data: &[],
            original_bytes: 0,
        };
        Probe::new(&framing, &reference).unwrap()
    }

    fn record(header: [u32; 4], data: &[u8]) -> Vec<u8> {
        [&header.map(u32::to_le_bytes).concat(), data].concat()
    }

    /// Records of the given lengths with payload from `fill`, and their start offsets.
    fn records(lengths: &[u32], fill: impl Fn(usize) -> u8) -> (Vec<u8>, Vec<usize>) {
        let (mut file, mut starts) = (Vec::new(), Vec::new());
        for &length in lengths {
            starts.push(file.len());
            let data: Vec<u8> = (0..length as usize).map(&fill).collect();
            file.extend(record([SECONDS + 3, 999_999, length, length + 60], &data));
        }
        (file, starts)
    }

    #[test]
    fn only_record_starts_are_starts() {
        // Zeros; a constant that reads as length 4; text; 8-byte counters.
        let fills: [fn(usize) -> u8; 4] = [
            |_| 0,
            |at| u8::from(at % 4 == 0) * 4,
            |at| b"abcdefg"[at % 7],
            |at| {
                if at % 8 == 0 { (at / 8) as u8 } else { 0 }
            },
        ];
        for fill in fills {
            let (file, starts) = records(&[1, 300, 64, 4096, 20, 700, 33], fill);
            let found: Vec<usize> =
                (0..file.len()).filter(|&at| probe().classify(&file[at..]) == RecordBoundary::Start).collect();
            assert_eq!(found, starts[..4]);
            assert_eq!(probe().find(&file[1..]), Some(starts[1] - 1));
            assert_eq!(probe().find(&file[starts[3] + 1..]), None);
        }
    }

    #[test]
    fn the_end_of_the_input_decides_nothing() {
        let (file, starts) = records(&[10, 20, 30], |_| 7);
        for (index, &start) in starts.iter().enumerate() {
            assert_eq!(probe().classify(&file[start..]), RecordBoundary::Undecided { records: 3 - index });
        }
        assert_eq!(probe().classify(&file[..file.len() - 1]), RecordBoundary::Undecided { records: 2 });
        assert_eq!(probe().classify(&file[..15]), RecordBoundary::Undecided { records: 0 });
        assert_eq!(probe().classify(&[]), RecordBoundary::Undecided { records: 0 });
    }

    #[test]
    fn implausible_headers() {
        let day = 86_400;
        let judge = |header| probe().classify(&record(header, &[0; 100]));
        assert_eq!(judge([SECONDS, 999_999, 100, 100]), RecordBoundary::Undecided { records: 1 });
        assert_eq!(judge([SECONDS, 1_000_000, 100, 100]), RecordBoundary::NotStart);
        assert_eq!(probe().classify(&record([SECONDS, 0, 0, 100], &[])), RecordBoundary::NotStart);
        assert_eq!(judge([SECONDS, 0, 100, 99]), RecordBoundary::NotStart);
        assert_eq!(judge([SECONDS, 0, 16 << 20, 16 << 20]), RecordBoundary::Undecided { records: 0 });
        assert_eq!(judge([SECONDS, 0, (16 << 20) + 1, (16 << 20) + 1]), RecordBoundary::NotStart);
        assert_eq!(judge([SECONDS, 0, 100, (16 << 20) + 1]), RecordBoundary::NotStart);
        assert_eq!(judge([SECONDS - 30 * day, 0, 100, 100]), RecordBoundary::Undecided { records: 1 });
        assert_eq!(judge([SECONDS - 30 * day - 1, 0, 100, 100]), RecordBoundary::NotStart);
        assert_eq!(judge([SECONDS + 30 * day, 1, 100, 100]), RecordBoundary::NotStart);
    }

    #[test]
    fn a_broken_link_of_the_chain() {
        let (mut file, starts) = records(&[10, 20, 30, 40, 50], |_| 7);
        assert_eq!(probe().classify(&file), RecordBoundary::Start);
        // incl_len of the third record becomes 0.
        file[starts[2] + 8] = 0;
        assert_eq!(probe().classify(&file), RecordBoundary::NotStart);
    }

    #[test]
    fn none_for_pcapng() {
        let section = [0x0A0D_0D0A_u32, 28, 0x1A2B_3C4D].map(u32::to_le_bytes).concat();
        let (framing, _) = Framing::detect(&section).unwrap();
        let data = [];
        let record =
            Record { time_ns: Some(1), link_type: LinkType::RAW, interface: 0, data: &data, original_bytes: 0 };
        assert!(Probe::new(&framing, &record).is_none());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = probe().classify(&bytes);
            let _ = probe().find(&bytes);
        }
    }
}
