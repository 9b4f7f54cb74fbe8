//! Recognizes lists of lengths in the payload of NCCL.
//!
//! If NCCL sends several messages together, the sender WRITEs their data first, and then their
//! lengths with immediate data ([`nccl::lengths`]):
//!
//! ```text
//! PSN 179  WRITE   100 bytes          data
//! PSN 180  WRITE  2000 bytes          data
//! PSN 182  WRITE with immediate data  lengths 100, 2000: kept
//! ```
//! A single message has no such list: its WRITE with immediate data is the only WRITE, or is empty.
//! A payload is therefore a list of lengths only if it has one length for each WRITE since the
//! previous WRITE with immediate data, and none of these WRITEs is longer than its message. In: the
//! packets of the connections of NCCL, in file order. Out: whether the payload of a packet is a
//! list. Invariant: in doubt, the payload is data and is cleared.

use crate::model::ConnectionKey;
use ibscope_parsers::Psn;
use ibscope_parsers::ib::{Opcode, Operation, Reth};
use ibscope_parsers::mpi::nccl;
use std::collections::{HashMap, VecDeque};

/// Number of WRITEs that are kept per connection: the WRITEs of one list, and those of the previous
/// list whose mirror copies may still follow.
const KEPT_WRITES: usize = 32;
/// Half of the PSN range. If two PSNs are closer than that, their order is known.
const HALF: u32 = 1 << 23;

/// A WRITE, or the last packet of one with immediate data.
#[derive(Clone, Copy, Debug)]
struct WriteStart {
    psn: Psn,
    length_bytes: u32,
    has_immediate: bool,
}

impl WriteStart {
    /// Number of PSNs from this WRITE to `psn`; `None` if this WRITE is not before `psn`.
    fn distance(&self, psn: Psn) -> Option<u32> {
        let distance = Psn::new(psn.value().wrapping_sub(self.psn.value())).value();
        (1..HALF).contains(&distance).then_some(distance)
    }
}

/// The last WRITEs of each NCCL connection.
#[derive(Debug, Default)]
pub(super) struct NcclWrites {
    by_connection: HashMap<ConnectionKey, VecDeque<WriteStart>>,
}

impl NcclWrites {
    /// Forgets all WRITEs, before the next capture.
    pub(super) fn clear(&mut self) {
        self.by_connection.clear();
    }

    /// Tracks a packet. Returns true if the payload of the packet is a list of lengths.
    pub(super) fn is_list(
        &mut self,
        key: &ConnectionKey,
        (opcode, psn): (Opcode, Psn),
        reth: Option<Reth>,
        payload: &[u8],
    ) -> bool {
        let has_immediate = match opcode.operation() {
            Some(Operation::RdmaWriteFirst | Operation::RdmaWriteOnly) => false,
            Some(Operation::RdmaWriteLastImmediate | Operation::RdmaWriteOnlyImmediate) => true,
            _ => return false,
        };
        let length_bytes = reth.map_or(0, |reth| reth.dma_len);
        let writes = self.by_connection.entry(*key).or_default();
        let is_list = has_immediate && is_list(writes, psn, length_bytes, payload);
        // Mirror copies and retransmissions have the same PSN.
        if writes.iter().all(|write| write.psn != psn) {
            writes.push_back(WriteStart { psn, length_bytes, has_immediate });
            if writes.len() > KEPT_WRITES {
                writes.pop_front();
            }
        }
        is_list
    }
}

fn is_list(writes: &VecDeque<WriteStart>, psn: Psn, length_bytes: u32, payload: &[u8]) -> bool {
    let Some(lengths) = nccl::lengths(payload, length_bytes) else { return false };
    let mut before: Vec<(u32, &WriteStart)> =
        writes.iter().filter_map(|write| Some((write.distance(psn)?, write))).collect();
    before.sort_unstable_by_key(|(distance, _)| *distance);
    let shares = before.iter().map(|(_, write)| write).take_while(|write| !write.has_immediate);
    let mut shares: Vec<u32> = shares.map(|write| write.length_bytes).collect();
    shares.reverse();
    let lengths: Vec<u32> = lengths.collect();
    shares.len() == lengths.len() && shares.iter().zip(&lengths).all(|(share, length)| share <= length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TrafficKind;
    use ibscope_parsers::{Endpoint, Lid, Qpn};

    const WRITE_ONLY: Opcode = Opcode(0x0A);
    const WRITE_ONLY_IMMEDIATE: Opcode = Opcode(0x0B);

    fn key() -> ConnectionKey {
        let [src, dst] = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        ConnectionKey { src, dst, kind: TrafficKind::Data, service: 0, dest_qp: Qpn::new(7), src_qp: Qpn::new(0) }
    }

    /// Sends WRITEs of these lengths from PSN 0xFFFFFE on, each as two mirror copies, and then a
    /// WRITE with immediate data and this payload. Returns true if the payload is a list.
    fn is_kept(writes: &[u32], payload: &[u8]) -> bool {
        let mut state = NcclWrites::default();
        let mut psns = (0xFF_FFFE..).map(Psn::new);
        let reth = |dma_len: u32| Some(Reth { va: 0, r_key: 0, dma_len });
        let mut send = |opcode: Opcode, length: u32, payload: &[u8]| {
            let psn = psns.next().expect("a PSN");
            let copies = [(); 2].map(|()| state.is_list(&key(), (opcode, psn), reth(length), payload));
            assert_eq!(copies[0], copies[1]);
            copies[0]
        };
        send(WRITE_ONLY_IMMEDIATE, 0, &[]);
        for length in writes {
            assert!(!send(WRITE_ONLY, *length, &[]));
        }
        send(WRITE_ONLY_IMMEDIATE, payload.len() as u32, payload)
    }

    fn list(lengths: &[u32]) -> Vec<u8> {
        lengths.iter().flat_map(|length| length.to_le_bytes()).collect()
    }

    #[test]
    fn lengths_of_several_messages_are_a_list() {
        assert!(is_kept(&[100, 1000, 0], &list(&[100, 2000, 0])));
        assert!(is_kept(&[8; 8], &list(&[8; 8])));
    }

    #[test]
    fn data_is_no_list() {
        // A single message, and a number of lengths that differs from that of the WRITEs.
        assert!(!is_kept(&[], b"data"));
        assert!(!is_kept(&[], b"data of a user 1"));
        assert!(!is_kept(&[100], b"data"));
        assert!(!is_kept(&[100, 100, 100], &list(&[100, 100])));
        // A WRITE that is longer than its message.
        assert!(!is_kept(&[100, 3000], &list(&[100, 2000])));
    }
}
