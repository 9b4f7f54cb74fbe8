//! Reads the messages in which processes exchange their addresses before MPI traffic starts: UCX's
//! wire-up and the connection messages of Open MPI and MVAPICH2.

use crate::model::{MpiConnectionMessage, PacketRef, QueuePair, WorkerWireup};
use ibscope_parsers::Qpn;
use ibscope_parsers::mpi::{LibraryStack, mvapich2_cm, ucx_wireup, udcm};

/// Number of bytes kept of a worker address. An address that lists several devices has a few
/// hundred bytes.
const MAX_ADDRESS_BYTES: usize = 1 << 10;

/// Reads the wire-up message at the start of a packet that was recognized as UCX's; `None` if there
/// is none.
pub(super) fn wireup(stack: LibraryStack, packet: PacketRef<'_>, payload: &[u8]) -> Option<WorkerWireup> {
    let (message, datagram_qp) = match stack {
        LibraryStack::UcxVerbs => (ucx_wireup::wireup(payload, 0)?, None),
        LibraryStack::UcxMlx5 => (ucx_wireup::wireup(payload, 1)?, None),
        LibraryStack::UcxUd => (ucx_wireup::wireup_datagram(payload)?, Some(Qpn::new(packet.extension()?))),
        LibraryStack::Ob1 | LibraryStack::Rxm | LibraryStack::Mvapich2 | LibraryStack::Nccl => return None,
    };
    Some(WorkerWireup {
        src: packet.key.src,
        dst: packet.key.dst,
        worker: message.worker?,
        sender_endpoint: message.sender_endpoint,
        receiver_endpoint: message.receiver_endpoint,
        datagram_qp,
        address: message.address.get(..MAX_ADDRESS_BYTES).unwrap_or(message.address).to_vec(),
    })
}

/// Reads the connection message of a datagram that was recognized as Open MPI's or MVAPICH2's;
/// `None` if it is another message.
pub(super) fn connection_message(
    stack: LibraryStack,
    packet: PacketRef<'_>,
    payload: &[u8],
) -> Option<MpiConnectionMessage> {
    let message_bytes = u32::from(packet.payload_bytes);
    let (number, job, world_rank, queue_pairs) = match stack {
        LibraryStack::Ob1 => {
            let message =
                udcm::datagram(payload, message_bytes).filter(|message| message.kind == udcm::UdcmKind::Connect)?;
            (0, message.job, message.world_rank, message.queues().map(|queue| queue.qpn).collect())
        }
        LibraryStack::Mvapich2 => {
            let message = mvapich2_cm::datagram(payload, message_bytes)?;
            let queue_pairs = message.rails().filter_map(|rail| rail.qpn).collect();
            (message.request, None, Some(message.sender_rank()), queue_pairs)
        }
        LibraryStack::UcxVerbs
        | LibraryStack::UcxMlx5
        | LibraryStack::UcxUd
        | LibraryStack::Rxm
        | LibraryStack::Nccl => return None,
    };
    let from = QueuePair { endpoint: packet.key.src, qpn: Qpn::new(packet.extension()?) };
    let to = QueuePair { endpoint: packet.key.dst, qpn: packet.key.dest_qp };
    Some(MpiConnectionMessage { stack, from, to, number, world_rank, job, queue_pairs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, PacketFields, PacketRecord};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid};

    /// Queue pair number of a lane; none of its bytes looks like the length of a list.
    const fn qpn(lane: u32) -> u32 {
        0x10_0000 + (lane / 32 * 0x100) + lane % 32
    }

    /// A wire-up request that lists this many queue pairs of six bytes each.
    fn listing(lanes: u32) -> Vec<u8> {
        let mut payload = vec![0; 21];
        (payload[0], payload[1]) = (1, 1);
        payload.extend([0; 9]);
        payload.push(0x40);
        for lane in 0..lanes {
            let [low, middle, high, _] = qpn(lane).to_le_bytes();
            payload.extend([4, 0, low, middle, high, if lane + 1 == lanes { 0x80 } else { 0 }]);
        }
        payload
    }

    #[test]
    fn of_a_longer_address_the_first_queue_pairs_are_kept() {
        // The address starts with one byte, the worker id and the byte before the lanes.
        let lanes = (MAX_ADDRESS_BYTES as u32 - 10) / 6;
        assert_eq!(lanes * 6 + 10, MAX_ADDRESS_BYTES as u32);
        let ends = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key = ConnectionKey::of(ends.into(), Opcode(4), Qpn::new(7), 0);
        let record = PacketRecord::new(PacketFields { opcode: Opcode(4), ..PacketFields::default() });
        for listed in [lanes, lanes + 1] {
            let packet = PacketRef { key: &key, record: &record };
            let wireup = wireup(LibraryStack::UcxVerbs, packet, &listing(listed)).expect("a wire-up message");
            let kept: Vec<u32> = ucx_wireup::lanes(&wireup.address).map(|lane| lane.qpn.value()).collect();
            assert_eq!((wireup.address.len(), kept), (MAX_ADDRESS_BYTES, (0..lanes).map(qpn).collect()));
        }
    }
}
