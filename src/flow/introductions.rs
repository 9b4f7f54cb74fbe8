//! Messages in which processes make themselves known to each other, before MPI's own.

use crate::model::{Introduction, Packet, QueuePair, Wireup};
use ibscope_parsers::Qpn;
use ibscope_parsers::mpi::{Form, mvapich2_cm, ucx_wireup, udcm};

/// Bytes that are kept of a worker's address; with several devices it has some hundreds.
const MAX_ADDRESS_BYTES: usize = 1 << 10;

/// Reads the wire-up message at the start of a packet that was recognised as UCX's, if it is one.
pub(super) fn wireup(form: Form, packet: Packet<'_>, payload: &[u8]) -> Option<Wireup> {
    let (message, datagram_qp) = match form {
        Form::UcxVerbs => (ucx_wireup::wireup(payload, 0)?, None),
        Form::UcxMlx5 => (ucx_wireup::wireup(payload, 1)?, None),
        Form::UcxUd => (ucx_wireup::wireup_datagram(payload)?, Some(Qpn::new(packet.extension))),
        Form::Ob1 | Form::Rxm | Form::Mvapich2 | Form::Nccl => return None,
    };
    Some(Wireup {
        src: packet.key.src,
        dst: packet.key.dst,
        worker: message.worker?,
        sender_endpoint: message.sender_endpoint,
        receiver_endpoint: message.receiver_endpoint,
        datagram_qp,
        address: message.address.get(..MAX_ADDRESS_BYTES).unwrap_or(message.address).to_vec(),
    })
}

/// Reads a datagram that was recognised as Open MPI's or MVAPICH2's, if it introduces its sender.
pub(super) fn introduction(form: Form, packet: Packet<'_>, payload: &[u8]) -> Option<Introduction> {
    let message_bytes = u32::from(packet.payload_bytes);
    let (number, job, world_rank, queue_pairs) = match form {
        Form::Ob1 => {
            let message =
                udcm::datagram(payload, message_bytes).filter(|message| message.kind == udcm::Kind::Connect)?;
            (0, message.job, message.world_rank, message.queues().map(|queue| queue.qpn).collect())
        }
        Form::Mvapich2 => {
            let message = mvapich2_cm::datagram(payload, message_bytes)?;
            let queue_pairs = message.rails().filter_map(|rail| rail.qpn).collect();
            (message.request, None, Some(message.sender_rank()), queue_pairs)
        }
        Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd | Form::Rxm | Form::Nccl => return None,
    };
    let from = QueuePair { endpoint: packet.key.src, qpn: Qpn::new(packet.extension) };
    let to = QueuePair { endpoint: packet.key.dst, qpn: packet.key.dest_qp };
    Some(Introduction { form, from, to, number, world_rank, job, queue_pairs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, Kind, Marks, PacketRecord};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Psn};

    /// Queue pair of a lane: none of its bytes looks like the length of a list.
    const fn qpn(lane: u32) -> u32 {
        0x10_0000 + (lane / 32 * 0x100) + lane % 32
    }

    /// A request that lists so many queue pairs, six bytes each.
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
        // Byte, id of the worker, and what says that lanes follow.
        let lanes = (MAX_ADDRESS_BYTES as u32 - 10) / 6;
        assert_eq!(lanes * 6 + 10, MAX_ADDRESS_BYTES as u32);
        let ends = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key = ConnectionKey::of(ends.into(), Opcode(4), Qpn::new(7), 0);
        let number = (Kind::Data, Psn::new(0), false);
        let record = PacketRecord::new(0, (Opcode(4), 0), number, Marks::default(), 30, 0, 0, (0, 0));
        for listed in [lanes, lanes + 1] {
            let packet = Packet { key: &key, record: &record };
            let wireup = wireup(Form::UcxVerbs, packet, &listing(listed)).expect("a wire-up message");
            let kept: Vec<u32> = ucx_wireup::lanes(&wireup.address).map(|lane| lane.qpn.value()).collect();
            assert_eq!((wireup.address.len(), kept), (MAX_ADDRESS_BYTES, (0..lanes).map(qpn).collect()));
        }
    }
}
