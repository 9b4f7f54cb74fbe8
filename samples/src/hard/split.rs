//! Distributes one capture over several files: rotation, and several mirror sinks.

use ibscope_parsers::Endpoint;

use super::frame::PacketFrame;
use super::{Recording, transmissions};
use crate::Random;

/// Random record indices that split a capture into `parts` files.
#[must_use]
pub fn split_points(recording: &Recording, parts: usize, random: &mut Random) -> Vec<usize> {
    let records = recording.records.len() as u64;
    let mut points: Vec<usize> = (1..parts).map(|_| random.below(records) as usize).collect();
    points.sort_unstable();
    points
}

/// Rotates a capture at these record indices, in order. Each file but the last also holds the first
/// `overlap` records of the next.
#[must_use]
pub fn rotate(recording: &Recording, points: &[usize], overlap: usize) -> Vec<Recording> {
    let records = recording.records.len();
    let starts = std::iter::once(0).chain(points.iter().copied());
    let ends = points.iter().map(|point| (point + overlap).min(records)).chain([records]);
    let part = |(start, end): (usize, usize)| recording.records.get(start..end).unwrap_or_default().to_vec();
    starts.zip(ends).map(|range| recording.with(part(range))).collect()
}

/// Gives the first record of every file but the first a time `early_ns` before the last record of
/// the previous file.
#[must_use]
pub fn disorder(parts: &[Recording], early_ns: u64) -> Vec<Recording> {
    let mut parts = parts.to_vec();
    for index in 1..parts.len() {
        let Some(last_ns) = parts[index - 1].records.last().map(|record| record.time_ns) else { continue };
        let link_type = parts[index].link_type;
        if let Some(first) = parts[index].records.first_mut() {
            *first = first.at(link_type, last_ns - early_ns);
        }
    }
    parts
}

/// Distributes the records of a sink that mirrors both ports of every packet to the sinks of
/// several leaf switches: the first mirror copy goes to the sender's leaf, the second to the
/// receiver's.
#[must_use]
pub fn by_leaf(sink: &Recording, leaves: usize, leaf_of: impl Fn(Endpoint) -> usize) -> Vec<Recording> {
    let found = transmissions(std::slice::from_ref(sink), 2);
    let mut sinks = vec![sink.empty_like(); leaves];
    for (record, copy) in sink.records.iter().zip(&found.mirror_copy[0]) {
        let Some(frame) = PacketFrame::read(sink.link_type, record) else { continue };
        let port = if *copy == 0 { frame.src } else { frame.dst };
        sinks[leaf_of(port) % leaves].records.push(record.clone());
    }
    sinks
}

/// Distributes each direction of every connection to one of `files` recordings, as a network
/// adapter with several receive queues or an equal-cost path to several collectors does.
#[must_use]
pub fn by_connection(recording: &Recording, files: usize, random: &mut Random) -> Vec<Recording> {
    let mut file_of = std::collections::HashMap::new();
    let mut parts = vec![recording.empty_like(); files];
    for record in &recording.records {
        let Some(frame) = PacketFrame::read(recording.link_type, record) else { continue };
        let drawn = || random.below(files as u64) as usize;
        let file = *file_of.entry((frame.src, frame.dst, frame.dest_qp)).or_insert_with(drawn);
        parts[file].records.push(record.clone());
    }
    parts
}

/// Shuffles a list.
pub fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for last in (1..list.len()).rev() {
        list.swap(last, random.below(last as u64 + 1) as usize);
    }
}
