//! Congestion marks that only uncounted inputs hold.
//!
//! A switch sets FECN, BECN or CE between two ports. If each port has an input, one of them counts, or
//! the first observation of each packet in their union; the marks may be in the other input. In: a
//! connection in all inputs. Out: the marks of the input that holds the most of them. Invariant: a
//! packet counts once, so the marks of two inputs do not add up.

use super::congestion::FLAGS;
use crate::model::paths::{PathSums, add_path};
use crate::model::{BinClass, BinSums, CongestionEvent, ConnectionTotals, Health, PackedBins};

/// Marks of one connection, from the inputs that do not count.
#[derive(Debug, Default)]
pub(super) struct OtherMarks {
    /// By flag ([`FLAGS`]).
    flags: [FlaggedPackets; FLAGS.len()],
    /// Path fields of packets with CE.
    paths: Vec<PathSums>,
}

/// Packets of one input with a flag.
#[derive(Debug, Default)]
struct FlaggedPackets {
    packets: u64,
    bins: Vec<(i64, BinSums)>,
}

impl OtherMarks {
    /// Notes the marks of an input.
    pub(super) fn note(&mut self, totals: &ConnectionTotals) {
        let mut health = totals.health.whole();
        for (most, (_, event)) in self.flags.iter_mut().zip(FLAGS) {
            let packets = *count(&mut health, event);
            if packets > most.packets {
                let bins = totals.bins.iter().filter(|(_, sums)| sums.class == BinClass::Congestion(event)).collect();
                *most = FlaggedPackets { packets, bins };
            }
        }
        for path in totals.paths.iter().filter(|path| path.ecn_ce_packets > 0) {
            match self.paths.iter_mut().find(|other| other.fields == path.fields) {
                Some(other) => other.ecn_ce_packets = other.ecn_ce_packets.max(path.ecn_ce_packets),
                None => self.paths.push(*path),
            }
        }
    }

    /// Replaces the marks of the connection by those of the input that holds more of them, if one does.
    pub(super) fn complete(self, total: &mut ConnectionTotals) {
        for (other, (_, event)) in self.flags.into_iter().zip(FLAGS) {
            if other.packets <= *count(&mut total.health.whole(), event) {
                continue;
            }
            total.health.change(|health| *count(health, event) = other.packets);
            let own = total.bins.iter().filter(|(_, sums)| sums.class != BinClass::Congestion(event));
            let mut bins: Vec<(i64, BinSums)> = own.chain(other.bins).collect();
            bins.sort_by_key(|(bin, _)| *bin);
            *total.bins = bins.into_iter().collect::<PackedBins<BinSums>>();
        }
        for path in self.paths {
            let own = total.paths.iter().find(|own| own.fields == path.fields).map_or(0, |own| own.ecn_ce_packets);
            let ecn_ce_packets = path.ecn_ce_packets.saturating_sub(own);
            if ecn_ce_packets > 0 {
                add_path(&mut total.paths, PathSums { fields: path.fields, ecn_ce_packets, ..PathSums::default() });
            }
        }
    }
}

/// The packets with the flag of an event.
const fn count(health: &mut Health, event: CongestionEvent) -> &mut u64 {
    match event {
        CongestionEvent::Fecn => &mut health.fecn_packets,
        CongestionEvent::Becn => &mut health.becn_packets,
        _ => &mut health.ecn_ce_packets,
    }
}
