//! Records that two files of one stream share.

use crate::align;
use crate::model::{HashMap, Packet, PacketRecord};

/// Records of a seam that are remembered per shard: at a seam they are hundreds.
const MAX_RECORDS: usize = 1 << 18;

/// Packets by time and hash, and how often each was there.
type Records = HashMap<(i64, u64), u32>;

/// The packets of a stream that later files may hold too. A record is the same where packet and time are.
#[derive(Debug, Default)]
pub(super) struct Seam {
    /// From here on packets are remembered, nanoseconds since the epoch; `None` where no file follows.
    from_ns: Option<i64>,
    /// Of the files before this one.
    before: Records,
    /// Of this one.
    own: Records,
    /// Packets that were not remembered: those of later files that are the same count again.
    left_out: u64,
}

impl Seam {
    /// The next file begins; those behind it begin at `from_ns`.
    pub(super) fn turn(&mut self, from_ns: Option<i64>) {
        self.from_ns = from_ns;
        for (record, count) in std::mem::take(&mut self.own) {
            *self.before.entry(record).or_default() += count;
        }
    }

    /// True where no file shares anything with this one.
    pub(super) fn is_idle(&self) -> bool {
        self.from_ns.is_none() && self.before.is_empty()
    }

    /// Packets that were not remembered.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// True where a file before this one holds the record too.
    pub(super) fn is_shared(&mut self, packet: Packet<'_>) -> bool {
        if packet.time_ns == PacketRecord::NO_TIME {
            return false;
        }
        let record = (packet.time_ns, align::hash(packet));
        if self.from_ns.is_some_and(|from_ns| from_ns <= packet.time_ns) {
            if self.own.len() < MAX_RECORDS || self.own.contains_key(&record) {
                *self.own.entry(record).or_default() += 1;
            } else {
                self.left_out += 1;
            }
        }
        match self.before.get_mut(&record) {
            Some(count) if *count > 1 => {
                *count -= 1;
                true
            }
            Some(_) => self.before.remove(&record).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, Kind, Marks, PacketRecord};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    #[test]
    fn packets_beyond_those_that_are_remembered_are_counted() {
        let [src, dst] = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key = ConnectionKey { src, dst, kind: Kind::Data, service: 0, dest_qp: Qpn::new(7), src_qp: Qpn::new(0) };
        let record = |time_ns: i64| {
            let what = (Kind::Data, Psn::new(1), false);
            PacketRecord::new(time_ns, (Opcode(4), 0), what, Marks::default(), 64, 0, 0, (0, 0))
        };
        let mut seam = Seam::default();
        seam.turn(Some(0));
        let packets = MAX_RECORDS as i64 + 1;
        for time_ns in 0..packets {
            assert!(!seam.is_shared(Packet { key: &key, record: &record(time_ns) }));
        }
        assert_eq!(seam.left_out(), 1);
        // A file that holds the same: all but that one are known.
        seam.turn(None);
        let shared = (0..packets).filter(|time_ns| seam.is_shared(Packet { key: &key, record: &record(*time_ns) }));
        assert_eq!(shared.count() as i64, packets - 1);
    }
}
