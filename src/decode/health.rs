//! What headers and frames say of congestion.

use crate::model::Marks;
use crate::model::coverage::BatchCounts;
use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::ib::Bth;
use ibscope_parsers::link::{Framed, Location};

/// `EtherType` of pause and PFC frames.
pub(super) const FLOW_CONTROL: u16 = 0x8808;
/// Opcodes: all traffic (IEEE 802.3, annex 31B), or single priorities (IEEE 802.1Qbb).
const PAUSE: [u8; 2] = [0, 1];
const PRIORITY_PAUSE: [u8; 2] = [1, 1];
/// ECN "congestion experienced".
const CE: u8 = 3;

/// The marks that switches and receivers set.
#[inline]
pub(super) fn congestion(data: &[u8], location: &Location, bth: &Bth) -> Marks {
    let byte = |at: usize| data.get(location.network + at).copied().unwrap_or(0);
    // The last two bits of the IPv4 TOS, and of the traffic class of IPv6 and GRH, which begins in the first byte's low half.
    let ecn = match location.framed {
        Framed::Native => 0,
        Framed::RoceV2Ipv4 => byte(1),
        Framed::RoceV1 | Framed::RoceV2Ipv6 => byte(1) >> 4,
    };
    Marks::FECN.when(bth.fecn).and(Marks::BECN.when(bth.becn)).and(Marks::ECN_CE.when(ecn & CE == CE))
}

/// Counts a pause frame by its sender, and what it asks for.
///
/// ```text
/// destination 6 | source 6 | 88 08 | opcode 2 | pause: quanta 2
///                                             | PFC: enabled classes 2 (bit 0: class 0) | quanta of class 0 to 7, 2 each
/// ```
#[cold]
pub(super) fn count_pause(record: &Record<'_>, counts: &mut BatchCounts) {
    // Behind a tag, and in other link types, the sender stands elsewhere: the frame is counted without it then.
    if record.link_type != LinkType::ETHERNET || record.data.get(12..14) != Some(&FLOW_CONTROL.to_be_bytes()) {
        return;
    }
    let Some(address) = record.data.get(6..12) else { return };
    let address: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let address = address.join(":");
    let opcode = record.data.get(14..16);
    let is_priority = opcode == Some(&PRIORITY_PAUSE);
    let sender = format!("{address} {}", if is_priority { "PFC" } else { "pause" });
    *counts.counts.pause_frames.entry(sender.clone()).or_default() += 1;
    let number = |at: usize| record.data.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let mut asked = |what: String, quanta: Option<u16>| {
        if let Some(quanta) = quanta {
            counts.counts.pauses.entry(what).or_default().add(quanta);
        }
    };
    if is_priority {
        let enabled = number(16).unwrap_or(0);
        for class in (0..8).filter(|class| enabled >> class & 1 == 1) {
            asked(format!("{sender} class {class}"), number(18 + 2 * class));
        }
    } else if opcode == Some(&PAUSE) {
        asked(sender, number(16));
    }
    counts.counts.bound_pauses();
}
