//! Writes packets as records of a classic pcap file.

use std::io::{self, Write};

use ibscope_parsers::frame::LinkType;

use crate::SampleFraming;
use crate::layout::{PCAP_HEADER_BYTES, SampleLayout, SamplePacket};

/// Buffered bytes that trigger a write.
const FLUSH_BYTES: usize = 1 << 20;

/// Writer of one classic pcap file.
pub(crate) struct PcapWriter<'a, W: Write> {
    layout: &'a SampleLayout,
    out: &'a mut W,
    buffer: Vec<u8>,
    records: u64,
    flushed_bytes: u64,
}

impl<'a, W: Write> PcapWriter<'a, W> {
    /// Creates a writer; nothing is written yet.
    pub(crate) fn new(layout: &'a SampleLayout, out: &'a mut W) -> Self {
        Self { layout, out, buffer: Vec::with_capacity(FLUSH_BYTES + 16_384), records: 0, flushed_bytes: 0 }
    }

    /// Writes the file header, version 2.4.
    pub(crate) fn file_header(&mut self) {
        let (magic, link_type): (u32, LinkType) = match self.layout.framing {
            SampleFraming::Native => (0xA1B2_C3D4, LinkType::ERF),
            SampleFraming::Roce => (0xA1B2_3C4D, LinkType::ETHERNET),
        };
        self.buffer.extend_from_slice(&magic.to_le_bytes());
        self.buffer.extend_from_slice(&[2, 0, 4, 0]);
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer.extend_from_slice(&(self.layout.snaplen as u32).to_le_bytes());
        self.buffer.extend_from_slice(&u32::from(link_type.0).to_le_bytes());
    }

    /// Appends one packet, observed at `time_ns` since the epoch.
    pub(crate) fn record(&mut self, time_ns: u64, packet: &SamplePacket) -> io::Result<()> {
        let fraction = match self.layout.framing {
            SampleFraming::Native => time_ns % 1_000_000_000 / 1000,
            SampleFraming::Roce => time_ns % 1_000_000_000,
        };
        let bytes = self.layout.template(packet.template).len();
        let captured_bytes = bytes.min(self.layout.snaplen);
        let mut header = [0; PCAP_HEADER_BYTES];
        header[..4].copy_from_slice(&((time_ns / 1_000_000_000) as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(fraction as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(captured_bytes as u32).to_le_bytes());
        header[12..].copy_from_slice(&(bytes as u32).to_le_bytes());
        self.buffer.extend_from_slice(&header);
        let start = self.buffer.len();
        self.layout.render(packet, time_ns, &mut self.buffer);
        self.buffer.truncate(start + captured_bytes);
        self.records += 1;
        if self.buffer.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.flushed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the remaining bytes; returns the number of records and the size of the file in bytes.
    pub(crate) fn finish(mut self) -> io::Result<(u64, u64)> {
        self.flush()?;
        self.out.flush()?;
        Ok((self.records, self.flushed_bytes))
    }
}
