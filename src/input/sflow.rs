//! Datagrams of sFlow agents from a UDP socket, as a capture.
//!
//! In: a bound socket. Out: the bytes of a pcap file of IP packets, one per datagram, which the
//! other readers take like any growing capture. Invariant: memory is bounded. While the analysis is
//! behind, datagrams wait in the buffer of the socket, and the kernel drops those beyond it; the
//! sequence numbers of the agents show how many ([`DatagramCounts`]).

use super::InputError;
use super::fifo::{EndCondition, PAUSE};
use crate::model::live::DatagramCounts;
use crate::model::{MirrorSequences, SampleCounters, SequenceRuns};
use ibscope_parsers::sampled::{SFLOW_PORT, SflowDatagram};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest datagram that UDP can carry.
const LARGEST_DATAGRAM: usize = 65_507;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
const TIME_TO_LIVE: u8 = 64;
/// The header of a pcap file, little-endian: magic number of nanoseconds, version 2.4, no time zone,
/// and link type 101, raw IP.
const FILE_HEADER: [u8; 24] = [0x4D, 0x3C, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];

/// A socket that receives sFlow.
#[derive(Debug)]
pub struct SflowListener {
    socket: UdpSocket,
    address: SocketAddr,
    counts: DatagramCounter,
}

/// Counts the datagrams of a listener while it receives.
#[derive(Clone, Debug, Default)]
pub struct DatagramCounter(Arc<Mutex<ReceivedDatagrams>>);

#[derive(Debug, Default)]
struct ReceivedDatagrams {
    datagrams: u64,
    other_datagrams: u64,
    sequences: MirrorSequences,
}

impl DatagramCounter {
    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> DatagramCounts {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        DatagramCounts {
            datagrams: own.datagrams,
            other_datagrams: own.other_datagrams,
            lost_datagrams: own.sequences.losses().values().map(|loss| loss.lost_frames).sum(),
            unnumbered_datagrams: own.sequences.left_out(),
        }
    }

    /// Adds a datagram that arrived at this time.
    fn add(&self, datagram: &[u8], time_ns: i64) {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        own.datagrams += 1;
        match SflowDatagram::parse(datagram) {
            Ok(parsed) => {
                let mut batch = SequenceRuns::default();
                let (sequence, uptime_ms) = (parsed.sequence(), Some(parsed.uptime_ms()));
                let counters = SampleCounters { sequence, uptime_ms, time_ns, ..SampleCounters::default() };
                batch.add_counters(parsed.session(), counters);
                own.sequences.add(&batch);
            }
            Err(_) => own.other_datagrams += 1,
        }
    }
}

impl SflowListener {
    /// Binds the socket.
    ///
    /// # Errors
    /// The address is in use or is not one of this machine.
    pub fn bind(address: SocketAddr) -> Result<Self, InputError> {
        let failed = |source| InputError::Listen { address, source };
        let socket = UdpSocket::bind(address).map_err(failed)?;
        socket.set_read_timeout(Some(PAUSE)).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, address, counts: DatagramCounter::default() })
    }

    /// The bound address; its port is the one that the system chose if the port was 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counts, which the listener updates as it receives.
    #[must_use]
    pub fn counter(&self) -> DatagramCounter {
        self.counts.clone()
    }

    /// The name of the input in outputs.
    #[must_use]
    pub fn name(&self) -> String {
        format!("sflow:{}", self.address)
    }

    /// The datagrams as a capture, which ends at the end condition.
    pub(super) fn into_reader(self, patience: EndCondition) -> Box<dyn Read + Send> {
        let bytes = io::Cursor::new(FILE_HEADER.to_vec());
        Box::new(SflowReader { listener: self, bytes, datagram: vec![0; LARGEST_DATAGRAM], end_condition: patience })
    }
}

struct SflowReader {
    listener: SflowListener,
    /// Bytes of the capture that were not read yet.
    bytes: io::Cursor<Vec<u8>>,
    datagram: Vec<u8>,
    end_condition: EndCondition,
}

impl Read for SflowReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.end_condition.is_over() {
            let count = self.bytes.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            match self.listener.socket.recv_from(&mut self.datagram) {
                Ok((length, sender)) => {
                    let datagram = self.datagram.get(..length).unwrap_or_default();
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    self.listener.counts.add(datagram, now.as_nanos() as i64);
                    let mut record = std::mem::take(&mut self.bytes).into_inner();
                    record.clear();
                    put_record(&mut record, (now.as_secs() as u32, now.subsec_nanos()), sender, datagram);
                    self.bytes = io::Cursor::new(record);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }
}

/// Appends the datagram as a record of a pcap file: an IP packet from the agent to the port of sFlow.
/// The destination is the unspecified address, because only the agent matters.
fn put_record(record: &mut Vec<u8>, (seconds, nanoseconds): (u32, u32), sender: SocketAddr, datagram: &[u8]) {
    let udp_bytes = (UDP_BYTES + datagram.len()) as u16;
    let mut ip = Vec::with_capacity(40);
    match sender.ip() {
        IpAddr::V4(source) => {
            ip.extend([0x45, 0]);
            // A datagram of the largest size fits: 65507 + 8 + 20 bytes.
            ip.extend((20 + udp_bytes).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, TIME_TO_LIVE, UDP, 0, 0]);
            ip.extend(source.octets());
            ip.extend([0; 4]);
        }
        IpAddr::V6(source) => {
            ip.extend([0x60, 0, 0, 0]);
            ip.extend(udp_bytes.to_be_bytes());
            ip.extend([UDP, TIME_TO_LIVE]);
            ip.extend(source.octets());
            ip.extend([0; 16]);
        }
    }
    let length = (ip.len() + usize::from(udp_bytes)) as u32;
    for number in [seconds, nanoseconds, length, length] {
        record.extend(number.to_le_bytes());
    }
    record.extend(ip);
    record.extend(sender.port().to_be_bytes());
    record.extend(SFLOW_PORT.to_be_bytes());
    record.extend(udp_bytes.to_be_bytes());
    record.extend([0, 0]);
    record.extend(datagram);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::frame::LinkType;
    use ibscope_parsers::link::{TunnelPath, locate_in_tunnels};

    /// A datagram without samples.
    fn datagram(sequence: u32, uptime_ms: u32) -> Vec<u8> {
        [5, 1, 0x0A00_0001, 0, sequence, uptime_ms, 0].map(u32::to_be_bytes).concat()
    }

    /// Datagrams 3003 and 3004 are lost; 3001 arrives twice, and then the agent restarts.
    #[test]
    fn a_restart_of_an_agent_loses_no_datagrams() {
        let counter = DatagramCounter::default();
        let numbers = [3000, 3001, 3001, 3002, 3005, 1, 2, 4];
        for (place, sequence) in (0_i64..).zip(numbers) {
            let uptime_ms = if sequence < 3000 { 100 } else { 900_000 } + place as u32 * 1000;
            counter.add(&datagram(sequence, uptime_ms), place * 1_000_000_000);
        }
        let counts = counter.counts();
        assert_eq!((counts.datagrams, counts.other_datagrams, counts.lost_datagrams), (8, 0, 2 + 1));
    }

    /// Both versions of IP, and the smallest and the largest datagram.
    #[test]
    fn a_record_holds_the_datagram() {
        for sender in ["192.0.2.7:5000", "[2001:db8::7]:5000"] {
            for length in [0, 1, 1400, LARGEST_DATAGRAM] {
                let mut record = Vec::new();
                put_record(&mut record, (1, 2), sender.parse().unwrap(), &vec![0xA5; length]);
                let data = &record[16..];
                let mut path = TunnelPath::default();
                let _ = locate_in_tunnels(LinkType::RAW, data, data.len() as u32, &mut path);
                let (start, end) = path.samples().expect("a datagram");
                assert_eq!(&data[start..end], &vec![0xA5; length][..], "{sender}");
                assert_eq!(record[8..12], (data.len() as u32).to_le_bytes());
            }
        }
    }
}
