//! A capture file in memory: classic pcap, plain or compressed with zstd.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use ibscope_parsers::frame::{CaptureItem, Framing, LinkType};

/// Magic number of a file compressed with zstd.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Magic numbers of classic pcap with microseconds, and with nanoseconds.
const MAGIC_MICROSECONDS: u32 = 0xA1B2_C3D4;
const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
/// Units of the ERF timestamp's fraction that ibdump uses for a microsecond.
const IBDUMP_FACTOR: u64 = 4295;
const ERF_TIME_BYTES: usize = 8;

/// One packet of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPacket {
    /// Capture time in nanoseconds since the epoch.
    pub time_ns: u64,
    /// Length of the packet before truncation by a snap length.
    pub original_bytes: u32,
    /// The captured bytes. Shared: cloning a record copies no packet.
    pub data: Arc<[u8]>,
}

/// The records of a classic pcap file, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Link type of all records.
    pub link_type: LinkType,
    /// True for timestamps in nanoseconds, false for microseconds.
    pub nanoseconds: bool,
    /// The packets.
    pub records: Vec<RecordedPacket>,
}

/// An empty Ethernet capture in nanoseconds.
impl Default for Recording {
    fn default() -> Self {
        Self { link_type: LinkType::ETHERNET, nanoseconds: true, records: Vec::new() }
    }
}

impl Recording {
    /// An empty recording of the same format.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        Self { link_type: self.link_type, nanoseconds: self.nanoseconds, records: Vec::new() }
    }

    /// A recording of the same format with these records.
    #[must_use]
    pub fn with(&self, records: Vec<RecordedPacket>) -> Self {
        Self { records, ..self.empty_like() }
    }

    /// Reads a classic pcap file, plain or compressed with zstd.
    ///
    /// # Errors
    /// The file cannot be read, is truncated, or is not a little-endian classic pcap file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let file = if bytes.starts_with(&ZSTD_MAGIC) { zstd::decode_all(&bytes[..])? } else { bytes };
        let refuse = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
        let (mut framing, header_bytes) = Framing::detect(&file).map_err(|error| refuse(&error.to_string()))?;
        let nanoseconds = file.starts_with(&MAGIC_NANOSECONDS.to_le_bytes());
        if !nanoseconds && !file.starts_with(&MAGIC_MICROSECONDS.to_le_bytes()) {
            return Err(refuse("not a little-endian classic pcap file"));
        }
        let link_type = framing.interfaces().first().map_or(LinkType::ETHERNET, |interface| interface.link_type);
        let mut records = Vec::new();
        let (_, stop) = framing.walk(file.get(header_bytes..).unwrap_or_default(), |item| {
            if let CaptureItem::Record(record) = item {
                records.push(RecordedPacket {
                    time_ns: record.time_ns.unwrap_or_default().cast_unsigned(),
                    original_bytes: record.original_bytes,
                    data: record.data.into(),
                });
            }
        });
        match stop {
            Some(error) => Err(refuse(&error.to_string())),
            None => Ok(Self { link_type, nanoseconds, records }),
        }
    }

    /// Writes the recording as a plain classic pcap file, with the resolution that it was read
    /// with.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        let (magic, unit_ns) = if self.nanoseconds { (MAGIC_NANOSECONDS, 1) } else { (MAGIC_MICROSECONDS, 1000) };
        // Version 2.4, no time zone, and the snap length that tcpdump and ibdump write.
        for word in [magic, 0x0004_0002, 0, 0, 0xFFFF, u32::from(self.link_type.0)] {
            out.write_all(&word.to_le_bytes())?;
        }
        for record in &self.records {
            let seconds = (record.time_ns / 1_000_000_000) as u32;
            let fraction = (record.time_ns % 1_000_000_000 / unit_ns) as u32;
            for word in [seconds, fraction, record.data.len() as u32, record.original_bytes] {
                out.write_all(&word.to_le_bytes())?;
            }
            out.write_all(&record.data)?;
        }
        out.flush()
    }

    /// Times of the earliest and the latest record; zeros if there is none.
    #[must_use]
    pub fn span_ns(&self) -> (u64, u64) {
        let times = || self.records.iter().map(|record| record.time_ns);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }

    /// Maps the time of every record with `time_ns`, also in the ERF header, if any.
    #[must_use]
    pub fn retimed(&self, time_ns: impl Fn(u64) -> u64) -> Self {
        self.with(self.records.iter().map(|record| record.at(self.link_type, time_ns(record.time_ns))).collect())
    }
}

impl RecordedPacket {
    /// The same packet at another time.
    #[must_use]
    pub fn at(&self, link_type: LinkType, time_ns: u64) -> Self {
        let mut record = Self { time_ns, ..self.clone() };
        if link_type == LinkType::ERF && record.data.len() >= ERF_TIME_BYTES {
            let mut data = record.data.to_vec();
            let (seconds, microseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
            let erf = (seconds << 32) + microseconds * IBDUMP_FACTOR;
            data[..ERF_TIME_BYTES].copy_from_slice(&erf.to_le_bytes());
            record.data = data.into();
        }
        record
    }
}
