//! Rewrites a capture file.
//!
//! In: a capture. Out: the same container with the records that can be anonymized, in order, plus
//! only those headers, blocks and options that are needed to read them, and the counters of the
//! interfaces. Other records, comments, host names and keys are dropped.

use super::{AnonymizeError, AnonymizeTally, Anonymizer};
use crate::input::{self, SourceOptions};
use crate::model::Batch;
use ibscope_parsers::frame::{CaptureItem, Framing};
use std::io::{self, Write};
use std::path::Path;

/// Block types of pcapng.
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// Interface options without which timestamps cannot be read: resolution, offset.
const INTERFACE_OPTIONS: [u16; 2] = [9, 14];
/// Statistics options that are counters: received, dropped by the interface, accepted, dropped by
/// the system, delivered.
const STATISTICS_OPTIONS: [u16; 5] = [4, 5, 6, 7, 8];

impl Anonymizer {
    /// Anonymizes one capture and writes it to `out`; `place` is its path in errors. Returns the
    /// tally of this capture only.
    pub fn file(&mut self, path: &Path, place: &Path, out: &mut dyn Write) -> Result<AnonymizeTally, AnonymizeError> {
        self.tally = AnonymizeTally::default();
        self.writes.clear();
        let failed = |source: io::Error| AnonymizeError::Output { path: place.to_owned(), source };
        let captures = input::open(&[path.to_owned()], &SourceOptions::default())?;
        let mut bytes = Vec::new();
        for mut capture in captures {
            out.write_all(&header(capture.header())).map_err(failed)?;
            let mut is_big = false;
            let mut buffer = Vec::new();
            while let Some(batch) = capture.next_batch(std::mem::take(&mut buffer)) {
                bytes.clear();
                self.batch(&batch, &mut is_big, &mut bytes);
                out.write_all(&bytes).map_err(failed)?;
                buffer = batch.bytes;
            }
            self.tally.ended_early = capture.ending().note;
        }
        Ok(std::mem::take(&mut self.tally))
    }

    fn batch(&mut self, batch: &Batch, is_big: &mut bool, out: &mut Vec<u8>) {
        let mut framing = batch.framing.clone();
        let mut rest = batch.bytes.as_slice();
        // The input accepted this framing before, so parsing does not fail here.
        while let Some((item, length)) =
            Some(rest).filter(|rest| !rest.is_empty()).and_then(|rest| framing.next(rest).ok())
        {
            let Some((whole, after)) = rest.split_at_checked(length) else { break };
            rest = after;
            if let CaptureItem::Record(record) = &item {
                self.tally.records += 1;
                let mut data = record.data.to_vec();
                if let Err(why) = self.record(&mut data, record.link_type, record.original_bytes) {
                    *self.tally.dropped.entry(why).or_default() += 1;
                    continue;
                }
                let offset = record.data.as_ptr().addr() - whole.as_ptr().addr();
                let mut head = whole[..offset].to_vec();
                let lengths_at = match &framing {
                    Framing::Pcap(_) => 8,
                    // Simple packets have no captured length.
                    Framing::Pcapng(_) => offset.saturating_sub(8).max(20),
                };
                if !shorten(&mut head, lengths_at, record.data.len(), data.len()) {
                    *self.tally.dropped.entry("tunnel in a pcapng simple packet".to_owned()).or_default() += 1;
                    continue;
                }
                match &framing {
                    Framing::Pcap(_) => {
                        out.extend(&head);
                        out.extend(&data);
                    }
                    Framing::Pcapng(_) => {
                        // Options such as comments and hashes follow the data: drop them.
                        let body = [head.get(8..).unwrap_or_default(), &data].concat();
                        block(number(*is_big, whole, 0), &body, *is_big, out);
                    }
                }
            } else if let Framing::Pcapng(_) = &framing {
                self.block(whole, is_big, out);
            }
        }
    }

    /// Rewrites a pcapng block without a packet.
    fn block(&mut self, whole: &[u8], is_big: &mut bool, out: &mut Vec<u8>) {
        if whole.get(..4) == Some(&SECTION.to_be_bytes()) {
            *is_big = whole.get(8..12) == Some(&[0x1A, 0x2B, 0x3C, 0x4D]);
        }
        let body = whole.get(8..whole.len().saturating_sub(4)).unwrap_or_default();
        let kind = number(*is_big, whole, 0);
        // Number of bytes before the options, and the options to keep.
        let (fixed, wanted): (usize, &[u16]) = match kind {
            // Byte order and version. The section length is reset, because it is no longer valid.
            SECTION => (16, &[]),
            INTERFACE => (8, &INTERFACE_OPTIONS),
            STATISTICS => (12, &STATISTICS_OPTIONS),
            _ => {
                self.tally.dropped_blocks += 1;
                return;
            }
        };
        let mut kept = body.get(..fixed).unwrap_or_default().to_vec();
        if kind == SECTION {
            kept.truncate(8);
            kept.extend([0xFF; 8]);
        }
        let options = body.get(fixed..).unwrap_or_default();
        kept.extend(some_options(options, wanted, *is_big));
        block(kind, &kept, *is_big, out);
    }
}

/// Reduces the captured and original lengths at `at` by the bytes that were removed from the start
/// of the record. Returns false if bytes were removed and the value at `at` is not the captured
/// length.
fn shorten(head: &mut [u8], at: usize, before: usize, after: usize) -> bool {
    let removed = (before - after) as u32;
    if removed == 0 {
        return true;
    }
    let Some(lengths) = head.get_mut(at..at + 8) else { return false };
    let is_big = match lengths.first_chunk::<4>() {
        Some(bytes) if u32::from_le_bytes(*bytes) as usize == before => false,
        Some(bytes) if u32::from_be_bytes(*bytes) as usize == before => true,
        _ => return false,
    };
    for (number, at) in [(number(is_big, lengths, 0), 0), (number(is_big, lengths, 4), 4)] {
        let shorter = number.saturating_sub(removed);
        let bytes = if is_big { shorter.to_be_bytes() } else { shorter.to_le_bytes() };
        lengths[at..at + 4].copy_from_slice(&bytes);
    }
    true
}

/// The header of a classic pcap file, with the unused fields for time zone and accuracy cleared.
/// Empty for pcapng.
fn header(old: &[u8]) -> Vec<u8> {
    let mut header = old.to_vec();
    if let Some(unused) = header.get_mut(8..16) {
        unused.fill(0);
    }
    header
}

/// The options with the wanted codes, followed by an end of options if there are any.
fn some_options(mut options: &[u8], wanted: &[u16], is_big: bool) -> Vec<u8> {
    let mut kept = Vec::new();
    while let Some((head, rest)) = options.split_first_chunk::<4>() {
        let half = |a, b| if is_big { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) };
        let (code, length) = (half(head[0], head[1]), usize::from(half(head[2], head[3])));
        let padded = length.next_multiple_of(4);
        let Some(value) = rest.get(..padded).filter(|_| code != 0) else { break };
        if wanted.contains(&code) {
            kept.extend(head);
            kept.extend(&value[..length]);
            kept.resize(kept.len().next_multiple_of(4), 0);
        }
        options = &rest[padded..];
    }
    if !kept.is_empty() {
        kept.extend([0; 4]);
    }
    kept
}

fn number(is_big: bool, bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
    if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
}

/// Appends a block.
fn block(kind: u32, body: &[u8], is_big: bool, out: &mut Vec<u8>) {
    debug_assert!([SECTION, INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, STATISTICS, ENHANCED_PACKET].contains(&kind));
    let padded = body.len().next_multiple_of(4);
    let word = |value: u32| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
    let total = word(padded as u32 + 12);
    out.extend(word(kind));
    out.extend(total);
    out.extend(body);
    out.resize(out.len() + padded - body.len(), 0);
    out.extend(total);
}
