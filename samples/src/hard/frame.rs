//! Access to the InfiniBand packet inside a record: its addresses, and valid checksums after a
//! change.

use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::{icrc, vcrc};
use ibscope_parsers::ib::{ICRC_BYTES, Opcode, Packet, VCRC_BYTES};
use ibscope_parsers::link::{Encapsulation, LinkContent, Location, locate};
use ibscope_parsers::{Endpoint, Qpn};

use super::{RecordedPacket, Recording};

const IPV4_BYTES: usize = 20;

/// Fields of a packet that transformations need.
#[derive(Clone, Copy, Debug)]
pub struct PacketFrame {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
    /// The sender's queue pair; datagrams only.
    pub src_qp: Option<Qpn>,
    /// Queue key; datagrams only.
    pub q_key: Option<u32>,
    /// Opcode.
    pub opcode: Opcode,
    /// Offset of the BTH in the record's data.
    pub bth_at: usize,
    /// Offset of the payload in the record's data.
    pub payload_at: usize,
    /// Captured length of the payload.
    pub payload_bytes: usize,
    location: Location,
}

impl PacketFrame {
    /// Parses the packet of a record; `None` if the record holds none or is truncated inside the
    /// BTH.
    #[must_use]
    pub fn read(link_type: LinkType, record: &RecordedPacket) -> Option<Self> {
        let Ok(LinkContent::Infiniband(location)) = locate(link_type, &record.data, record.original_bytes) else {
            return None;
        };
        let packet = Packet::parse_lax(&record.data, &location).ok()?;
        Some(Self {
            src: location.src,
            dst: location.dst,
            dest_qp: packet.bth.dest_qp,
            src_qp: packet.ext.deth.map(|deth| deth.src_qp),
            q_key: packet.ext.deth.map(|deth| deth.q_key),
            opcode: packet.bth.opcode,
            bth_at: packet.payload_offset.checked_sub(12 + usize::from(packet.bth.opcode.ext_bytes()))?,
            payload_at: packet.payload_offset,
            payload_bytes: packet.payload.len(),
            location,
        })
    }

    /// Writes new endpoints into the packet; they must have the type of the old ones. Does nothing
    /// for RoCEv1 and IPv6.
    pub fn set_endpoints(&self, data: &mut [u8], src: Endpoint, dst: Endpoint) {
        let (at, source_at, bytes) = match self.location.encapsulation {
            // LRH: DLID at 2, SLID at 6.
            Encapsulation::Native => (self.location.start + 2, self.location.start + 6, 2),
            // IPv4: source at 12, destination at 16.
            Encapsulation::RoceV2Ipv4 => (self.location.network + 16, self.location.network + 12, 4),
            Encapsulation::RoceV1 | Encapsulation::RoceV2Ipv6 => return,
        };
        let low = |endpoint: Endpoint| endpoint.low_bits().to_be_bytes();
        write(data, at, &low(dst)[8 - bytes..]);
        write(data, source_at, &low(src)[8 - bytes..]);
    }

    /// Writes new queue pair numbers into BTH and DETH.
    pub fn set_queue_pairs(&self, data: &mut [u8], src_qp: Option<Qpn>, dest_qp: Qpn) {
        write(data, self.bth_at + 5, &dest_qp.value().to_be_bytes()[1..]);
        if let Some(src_qp) = src_qp.filter(|_| self.src_qp.is_some()) {
            // DETH: queue key, one reserved byte, source queue pair.
            write(data, self.bth_at + 12 + 5, &src_qp.value().to_be_bytes()[1..]);
        }
    }

    /// Recomputes the checksums of a changed packet: IPv4 header, ICRC and VCRC. A truncated packet
    /// gets only the first.
    pub fn seal(&self, data: &mut [u8]) {
        let Location { encapsulation: framed, network, start, .. } = self.location;
        if framed == Encapsulation::RoceV2Ipv4 {
            seal_ipv4(data, network);
        }
        let end = self.location.end();
        if let Some(sum) = icrc(framed, data, &self.location)
            && end <= data.len()
        {
            write(data, end - ICRC_BYTES, &sum.to_le_bytes());
        }
        if framed == Encapsulation::Native && end + VCRC_BYTES <= data.len() {
            let sum = vcrc(&data[start..end]);
            write(data, end, &sum.to_le_bytes());
        }
    }
}

/// The recording with changed packets: `change` gets the number of each record that holds one, the packet and
/// its bytes. Checksums are as `change` leaves them; [`PacketFrame::seal`] makes them valid.
#[must_use]
pub fn change_packets(recording: &Recording, mut change: impl FnMut(usize, &PacketFrame, &mut [u8])) -> Recording {
    let changed = |(number, record): (usize, &RecordedPacket)| {
        let Some(frame) = PacketFrame::read(recording.link_type, record) else { return record.clone() };
        let mut data = record.data.to_vec();
        change(number, &frame, &mut data);
        RecordedPacket { data: data.into(), ..record.clone() }
    };
    recording.with(recording.records.iter().enumerate().map(changed).collect())
}

/// Recomputes the checksum of the IPv4 header and clears that of UDP, which is optional over IPv4.
pub(super) fn seal_ipv4(data: &mut [u8], at: usize) {
    write(data, at + IPV4_BYTES + 6, &[0, 0]);
    seal_ipv4_header(data, at);
}

/// Recomputes the checksum of the IPv4 header.
pub(crate) fn seal_ipv4_header(data: &mut [u8], at: usize) {
    write(data, at + 10, &[0, 0]);
    let Some(header) = data.get(at..at + IPV4_BYTES) else { return };
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let folded = (folded & 0xFFFF) + (folded >> 16);
    write(data, at + 10, &(!(folded as u16)).to_be_bytes());
}

/// Overwrites bytes if all of them were captured.
pub(super) fn write(data: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = data.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
