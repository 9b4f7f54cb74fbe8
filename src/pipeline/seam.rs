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

    /// True where a file before this one holds the record too.
    pub(super) fn is_shared(&mut self, packet: Packet<'_>) -> bool {
        if packet.time_ns == PacketRecord::NO_TIME {
            return false;
        }
        let record = (packet.time_ns, align::hash(packet));
        if self.from_ns.is_some_and(|from_ns| from_ns <= packet.time_ns) && self.own.len() < MAX_RECORDS {
            *self.own.entry(record).or_default() += 1;
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
