//! Congestion flags (FECN, BECN, ECN) of packets, and pause frames.

use crate::model::coverage::BatchCounts;
use crate::model::pause_series::PauseBin;
use crate::model::{PacketFlags, PacketRecord};
use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::ib::Bth;
use ibscope_parsers::link::{Encapsulation, Location};

/// `EtherType` of pause and PFC frames.
pub(super) const FLOW_CONTROL: u16 = 0x8808;
/// Pause opcodes: for all traffic (IEEE 802.3, annex 31B), or by priority (IEEE 802.1Qbb).
const PAUSE: [u8; 2] = [0, 1];
const PRIORITY_PAUSE: [u8; 2] = [1, 1];
/// ECN "congestion experienced".
const CE: u8 = 3;

/// Congestion flags that switches and receivers have set in a packet.
#[inline]
pub(super) fn congestion_flags(data: &[u8], location: &Location, bth: &Bth) -> PacketFlags {
    let byte = |at: usize| data.get(location.network + at).copied().unwrap_or(0);
    // The last two bits of the IPv4 TOS, or of the traffic class of IPv6 and GRH, which starts in
    // the low half of the first byte.
    let ecn = match location.encapsulation {
        Encapsulation::Native => 0,
        Encapsulation::RoceV2Ipv4 => byte(1),
        Encapsulation::RoceV1 | Encapsulation::RoceV2Ipv6 => byte(1) >> 4,
    };
    PacketFlags::FECN
        .set_if(bth.fecn)
        .union(PacketFlags::BECN.set_if(bth.becn))
        .union(PacketFlags::ECN_CE.set_if(ecn & CE == CE))
}

/// Counts the pause frame at offset `frame_at` of the record by sender, and the pauses that it
/// requests; `time_ns` is its time, [`PacketRecord::NO_TIME`] without one.
///
/// ```text
/// destination 6 | source 6 | 88 08 | opcode 2 | pause: quanta 2
///                                             | PFC: enabled classes 2 (bit 0: class 0),
///                                             |      quanta of classes 0 to 7, 2 each
/// ```
#[cold]
pub(super) fn count_pause(record: &Record<'_>, time_ns: i64, frame_at: usize, counts: &mut BatchCounts) {
    let frame = record.data.get(frame_at..).unwrap_or_default();
    // After a VLAN tag and in other link types the sender has another offset; such frames count
    // without a sender.
    if record.link_type != LinkType::ETHERNET || frame.get(12..14) != Some(&FLOW_CONTROL.to_be_bytes()) {
        return;
    }
    let Some(address) = frame.get(6..12) else { return };
    let address: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let address = address.join(":");
    let opcode = frame.get(14..16);
    let is_priority = opcode == Some(&PRIORITY_PAUSE);
    let sender = format!("{address} {}", if is_priority { "PFC" } else { "pause" });
    *counts.counts.pause_frames.entry(sender.clone()).or_default() += 1;
    let number = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let mut sums = PauseBin { frames: 1, ..PauseBin::default() };
    let mut add_pause = |what: String, quanta: Option<u16>| {
        if let Some(quanta) = quanta {
            sums.add(quanta);
            counts.counts.pauses.entry(what).or_default().add(quanta);
        }
    };
    if is_priority {
        let enabled = number(16).unwrap_or(0);
        for class in (0..8).filter(|class| enabled >> class & 1 == 1) {
            add_pause(format!("{sender} class {class}"), number(18 + 2 * class));
        }
    } else if opcode == Some(&PAUSE) {
        add_pause(sender, number(16));
    }
    if time_ns != PacketRecord::NO_TIME {
        counts.counts.pause_series.add(time_ns, sums);
    }
    counts.counts.bound_pauses();
}
