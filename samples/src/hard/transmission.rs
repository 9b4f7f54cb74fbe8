//! Finds the records that are mirror copies of the same transmission.

use std::collections::HashMap;

use ibscope_parsers::frame::LinkType;

use super::Recording;

/// Length of the ERF header, whose timestamp differs between mirror copies.
const ERF_BYTES: usize = 16;

/// Transmission of every record of some recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmissionIndex {
    /// Per recording and record: number of the transmission, from 0 in order of appearance.
    pub transmission: Vec<Vec<usize>>,
    /// Per recording and record: 0 for the first mirror copy of the transmission, 1 for the second.
    pub mirror_copy: Vec<Vec<usize>>,
    /// Number of transmissions.
    pub count: usize,
}

/// Finds mirror copies: records with the same bytes.
///
/// A packet that is retransmitted with the same bytes is two transmissions, because no recording
/// holds more than `copies` of one: 2 in the capture of a sink that mirrors both ports, 1 in that
/// of a single port.
#[must_use]
pub fn transmissions(recordings: &[Recording], copies: usize) -> TransmissionIndex {
    let mut numbers: HashMap<(&[u8], usize), usize> = HashMap::new();
    let mut found: Vec<usize> = Vec::new();
    let (mut of, mut copy) = (Vec::new(), Vec::new());
    for recording in recordings {
        let skipped = if recording.link_type == LinkType::ERF { ERF_BYTES } else { 0 };
        let mut times_seen: HashMap<&[u8], usize> = HashMap::new();
        let (mut own, mut own_copy) = (Vec::new(), Vec::new());
        for record in &recording.records {
            let bytes = record.data.get(skipped..).unwrap_or_default();
            let seen = times_seen.entry(bytes).or_default();
            let next = found.len();
            let number = *numbers.entry((bytes, *seen / copies)).or_insert(next);
            if number == next {
                found.push(0);
            }
            own.push(number);
            own_copy.push(found[number]);
            found[number] += 1;
            *seen += 1;
        }
        of.push(own);
        copy.push(own_copy);
    }
    TransmissionIndex { transmission: of, mirror_copy: copy, count: found.len() }
}
