//! Packets that overlapping files of one stream share.
//!
//! Files of a rotated capture may repeat records around the point of rotation. Invariant: a record
//! in two files of a stream counts once, unless the bound on remembered records is exceeded.

use crate::align;
use crate::model::{HashMap, PacketRecord, PacketRef};

/// Records that a shard remembers per overlap; a usual overlap has hundreds.
const MAX_RECORDS: usize = 1 << 18;

/// Number of records by time and packet hash.
type Records = HashMap<(i64, u64), u32>;

/// The packets of a stream that later files may repeat. Two records with the same packet hash and
/// the same time are the same record.
#[derive(Debug, Default)]
pub(super) struct FileOverlap {
    /// Packets from this time on are remembered, nanoseconds since the epoch; `None` without a
    /// later file.
    from_ns: Option<i64>,
    /// Records of earlier files.
    earlier_files: Records,
    /// Records of the current file.
    current_file: Records,
    /// Packets that were not remembered; if a later file repeats them, they count twice.
    left_out: u64,
}

impl FileOverlap {
    /// Starts the next file. Files after it start at `from_ns` at the earliest.
    pub(super) fn next_file(&mut self, from_ns: Option<i64>) {
        self.from_ns = from_ns;
        for (record, count) in std::mem::take(&mut self.current_file) {
            *self.earlier_files.entry(record).or_default() += count;
        }
    }

    /// True if no other file can share a record with the current one.
    pub(super) fn is_idle(&self) -> bool {
        self.from_ns.is_none() && self.earlier_files.is_empty()
    }

    /// Number of packets that were not remembered.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Remembers the record, and returns true if an earlier file has it too.
    pub(super) fn is_shared(&mut self, packet: PacketRef<'_>) -> bool {
        if packet.time_ns == PacketRecord::NO_TIME {
            return false;
        }
        let record = (packet.time_ns, align::hash(packet));
        if self.from_ns.is_some_and(|from_ns| from_ns <= packet.time_ns) {
            if self.current_file.len() < MAX_RECORDS || self.current_file.contains_key(&record) {
                *self.current_file.entry(record).or_default() += 1;
            } else {
                self.left_out += 1;
            }
        }
        match self.earlier_files.get_mut(&record) {
            Some(count) if *count > 1 => {
                *count -= 1;
                true
            }
            Some(_) => self.earlier_files.remove(&record).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, PacketFields, PacketRecord, TrafficKind};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    #[test]
    fn packets_beyond_the_bound_are_counted_as_left_out() {
        let [src, dst] = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key =
            ConnectionKey { src, dst, kind: TrafficKind::Data, service: 0, dest_qp: Qpn::new(7), src_qp: Qpn::new(0) };
        let record = |time_ns: i64| {
            let fields = PacketFields { time_ns, opcode: Opcode(4), psn: Psn::new(1), ..PacketFields::default() };
            PacketRecord::new(fields)
        };
        let mut overlap = FileOverlap::default();
        overlap.next_file(Some(0));
        let packets = MAX_RECORDS as i64 + 1;
        for time_ns in 0..packets {
            assert!(!overlap.is_shared(PacketRef { key: &key, record: &record(time_ns) }));
        }
        assert_eq!(overlap.left_out(), 1);
        // A file with the same packets: all but the one that was not remembered are shared.
        overlap.next_file(None);
        let shared =
            (0..packets).filter(|time_ns| overlap.is_shared(PacketRef { key: &key, record: &record(*time_ns) }));
        assert_eq!(shared.count() as i64, packets - 1);
    }
}
