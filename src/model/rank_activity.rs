//! The packets of one rank in one collective operation.
//!
//! In: the messages of the operation. Out: for each rank that sent or received one of them, the
//! times of its packets. Ranks whose messages are not on the wire have no row.

use super::PacketRecord;
use std::collections::BTreeMap;

/// Times of the packets that one rank sent and received in a collective operation, in nanoseconds
/// since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankActivity {
    /// World rank.
    pub rank: u32,
    /// Time of its first packet, sent or received.
    pub start_ns: i64,
    /// Time of its last packet, sent or received.
    pub end_ns: i64,
    /// Time of the first packet that it sent; `None` if it sent none on the wire.
    pub first_send_ns: Option<i64>,
    /// Time of the last packet that it received; `None` if it received none on the wire.
    pub last_receive_ns: Option<i64>,
}

impl RankActivity {
    /// The activity of each rank, sorted by rank. A message is its sender, its receiver and the
    /// times of its first and last packet; messages without these times are skipped.
    pub fn of_messages(messages: impl Iterator<Item = (u32, u32, (i64, i64))>) -> Vec<Self> {
        let mut ranks: BTreeMap<u32, Self> = BTreeMap::new();
        for (src, dst, (first_ns, last_ns)) in messages {
            if first_ns == PacketRecord::NO_TIME || last_ns == PacketRecord::NO_TIME {
                continue;
            }
            for rank in [src, dst] {
                let own = ranks.entry(rank).or_insert(Self {
                    rank,
                    start_ns: first_ns,
                    end_ns: last_ns,
                    first_send_ns: None,
                    last_receive_ns: None,
                });
                own.start_ns = own.start_ns.min(first_ns);
                own.end_ns = own.end_ns.max(last_ns);
                if rank == src {
                    own.first_send_ns = Some(own.first_send_ns.map_or(first_ns, |ns| ns.min(first_ns)));
                } else {
                    own.last_receive_ns = Some(own.last_receive_ns.map_or(last_ns, |ns| ns.max(last_ns)));
                }
            }
        }
        ranks.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_the_times_of_its_packets() {
        // A broadcast from rank 2 over rank 0 to rank 1, and a message without times.
        let messages = [(2, 0, (10, 20)), (0, 1, (30, 45)), (3, 1, (PacketRecord::NO_TIME, PacketRecord::NO_TIME))];
        let activity = |rank, start_ns, end_ns, first_send_ns, last_receive_ns| RankActivity {
            rank,
            start_ns,
            end_ns,
            first_send_ns,
            last_receive_ns,
        };
        assert_eq!(
            RankActivity::of_messages(messages.into_iter()),
            [
                activity(0, 10, 45, Some(30), Some(20)),
                activity(1, 30, 45, None, Some(45)),
                activity(2, 10, 20, Some(10), None)
            ]
        );
    }
}
