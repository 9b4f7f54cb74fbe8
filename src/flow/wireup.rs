//! Wire-up messages of UCX.

use crate::model::{PacketRecord, Wireup};
use ibscope_parsers::Qpn;
use ibscope_parsers::mpi::{Form, ucx_wireup};

/// Reads the wire-up message at the start of a packet that was recognised as UCX's, if it is one.
pub(super) fn read(form: Form, packet: &PacketRecord, batch_bytes: &[u8]) -> Option<Wireup> {
    let payload = packet.payload(batch_bytes);
    let (message, datagram_qp) = match form {
        Form::Ob1 | Form::Rxm => return None,
        Form::UcxVerbs => (ucx_wireup::wireup(payload, 0)?, None),
        Form::UcxMlx5 => (ucx_wireup::wireup(payload, 1)?, None),
        Form::UcxUd => (ucx_wireup::wireup_datagram(payload)?, Some(Qpn::new(packet.extension))),
    };
    Some(Wireup {
        src: packet.src,
        dst: packet.dst,
        worker: message.worker?,
        sender_endpoint: message.sender_endpoint,
        receiver_endpoint: message.receiver_endpoint,
        datagram_qp,
        address: message.address.to_vec(),
    })
}
