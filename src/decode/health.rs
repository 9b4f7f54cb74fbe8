//! What headers and frames say of congestion.

use crate::model::Marks;
use crate::model::coverage::BatchCounts;
use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::ib::Bth;
use ibscope_parsers::link::{Framed, Location};

/// `EtherType` of pause and PFC frames.
pub(super) const FLOW_CONTROL: u16 = 0x8808;
/// Opcode of a frame that pauses single priorities (IEEE 802.1Qbb); 1 pauses all.
const PRIORITY_PAUSE: [u8; 2] = [1, 1];
/// Senders of pause frames that are told apart in one batch. A link has two.
const MAX_PAUSE_SENDERS: usize = 1 << 10;
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

/// Counts a pause frame by its sender.
#[cold]
pub(super) fn count_pause(record: &Record<'_>, counts: &mut BatchCounts) {
    // Behind a tag, and in other link types, the sender stands elsewhere: the frame is counted without it then.
    if record.link_type != LinkType::ETHERNET || record.data.get(12..14) != Some(&FLOW_CONTROL.to_be_bytes()) {
        return;
    }
    let Some(address) = record.data.get(6..12) else { return };
    let what = if record.data.get(14..16) == Some(&PRIORITY_PAUSE) { "PFC" } else { "pause" };
    let address: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let sender = format!("{} {what}", address.join(":"));
    let pauses = &mut counts.counts.pause_frames;
    if pauses.len() < MAX_PAUSE_SENDERS || pauses.contains_key(&sender) {
        *pauses.entry(sender).or_default() += 1;
    }
}
