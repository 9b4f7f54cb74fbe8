//! Target `capture`: the bytes are choices for a whole capture with valid lengths, numbers and
//! checksums, so that it passes the first checks. The capture is written as a file of any format
//! and analyzed with one thread and with three.

use crate::events::{PacketSequence, SentPacket};
use crate::packet::FuzzEncapsulation;
use crate::{pipeline, scratch};
use arbitrary::{Arbitrary, Unstructured};
use ibscope::pipeline::AnalysisOptions;
use std::path::PathBuf;

/// Format of a generated capture file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuzzFileFormat {
    pub(crate) link_type: u16,
    /// Bit 0: big-endian; bit 1: pcapng; bit 2: nanoseconds; bit 3: every packet twice; bit 4:
    /// truncated to 48 bytes.
    pub(crate) variant_bits: u8,
}

impl FuzzFileFormat {
    /// The bytes of the file.
    pub(crate) fn bytes(self, packets: &[SentPacket]) -> Vec<u8> {
        let mut file = if self.variant_bits & 2 == 0 { self.classic_head() } else { self.section() };
        for sent in packets {
            for _ in 0..=(self.variant_bits >> 3 & 1) {
                file.extend(self.record(sent));
            }
        }
        file
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.variant_bits & 1 == 0 { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u16(self, value: u16) -> [u8; 2] {
        if self.variant_bits & 1 == 0 { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|&word| self.u32(word)).collect()
    }

    fn classic_head(self) -> Vec<u8> {
        let magic = if self.variant_bits & 4 == 0 { 0xA1B2_C3D4 } else { 0xA1B2_3C4D };
        let version = [self.u16(2), self.u16(4)].concat();
        [&self.u32(magic)[..], &version, &self.words(&[0, 0, 0xFFFF, u32::from(self.link_type)])].concat()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let total = self.u32(12 + body.len().next_multiple_of(4) as u32);
        let mut block = [&self.u32(kind)[..], &total, body].concat();
        block.resize(8 + body.len().next_multiple_of(4), 0);
        [block, total.to_vec()].concat()
    }

    fn section(self) -> Vec<u8> {
        let section = [&self.u32(0x1A2B_3C4D)[..], &self.u16(1), &self.u16(0), &[0xFF; 8]].concat();
        // if_tsresol: microseconds.
        let interface =
            [&self.u16(self.link_type)[..], &[0; 6], &self.u16(9), &self.u16(1), &[6, 0, 0, 0], &[0; 4]].concat();
        [self.block(0x0A0D_0D0A, &section), self.block(1, &interface)].concat()
    }

    fn record(self, sent: &SentPacket) -> Vec<u8> {
        let captured = if self.variant_bits & 16 == 0 { sent.bytes.len() } else { sent.bytes.len().min(48) };
        let data = &sent.bytes[..captured];
        let lengths = [captured as u32, sent.bytes.len() as u32];
        if self.variant_bits & 2 == 0 {
            let unit = if self.variant_bits & 4 == 0 { 1 } else { 1000 };
            let head = [1_700_000_000 + sent.time_us / 1_000_000, sent.time_us % 1_000_000 * unit];
            return [&self.words(&head), &self.words(&lengths), data].concat();
        }
        let time_us = 1_700_000_000_000_000 + u64::from(sent.time_us);
        let head = [0, (time_us >> 32) as u32, time_us as u32];
        self.block(6, &[&self.words(&head), &self.words(&lengths), data].concat())
    }
}

/// The format of the file and the packets in it.
pub(crate) fn format_and_packets(bytes: &[u8]) -> Option<(FuzzFileFormat, Vec<SentPacket>)> {
    let mut input = Unstructured::new(bytes);
    let frame = FuzzEncapsulation::arbitrary(&mut input).ok()?;
    let form = input.arbitrary().ok()?;
    Some((
        FuzzFileFormat { link_type: frame.link_type().0, variant_bits: form },
        PacketSequence::new(frame, &mut input).run(),
    ))
}

/// Runs every operation on one capture, and analyzes it again with three threads.
///
/// # Panics
/// If results contradict each other or depend on the number of threads.
pub fn run(bytes: &[u8]) {
    let Some((form, packets)) = format_and_packets(bytes) else { return };
    let paths: [PathBuf; 1] = [scratch::path("capture.pcap")];
    std::fs::write(&paths[0], form.bytes(&packets)).expect("room for a file");
    let figures = packets.len() % 16 == 15;
    let Some(profile) = pipeline::analyze_and_render(&paths, figures) else { return };
    let again = pipeline::profile(&[&paths[0]], &AnalysisOptions { threads: 3, ..AnalysisOptions::default() });
    assert_eq!(again.as_ref(), Some(&profile));
}
