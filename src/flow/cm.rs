//! Reads connection management (CM) messages: the ports that connect, and their queue pairs.

use crate::model::PacketRef;
use crate::model::profile::CmRow;
use ibscope_parsers::ib::cm::CmMessage;
use ibscope_parsers::mpi::rdmacm;
use ibscope_parsers::ulp;

/// Fills in the fields of the private data. `ranks` compares both sides of the exchange before it
/// uses them.
fn fill_private_data(row: &mut CmRow, peer: Option<rdmacm::RdmacmPeer>) {
    row.world_rank = peer.map(|peer| peer.world_rank);
    row.mpi_job = peer.map(|peer| peer.job);
    row.mpi_queue = peer.map(|peer| peer.queue);
}

/// Reads the CM message of a management packet; `None` if the packet has none.
#[must_use]
pub fn connection_management(packet: PacketRef<'_>, batch_bytes: &[u8]) -> Option<CmRow> {
    let message = CmMessage::parse(packet.payload(batch_bytes)).ok()?;
    let mut row = CmRow {
        time_ns: packet.time_ns,
        src: packet.key.src,
        dst: packet.key.dst,
        message: message.name().to_owned(),
        local_comm_id: 0,
        remote_comm_id: None,
        qpn: None,
        starting_psn: None,
        service_id: None,
        protocol: None,
        world_rank: None,
        mpi_job: None,
        mpi_port: None,
        mpi_queue: None,
    };
    let (local, remote) = match message {
        CmMessage::Req(req) => {
            row.qpn = Some(req.local_qpn);
            row.starting_psn = Some(req.starting_psn.value());
            row.service_id = Some(req.service_id);
            row.protocol = ulp::of_request(req.service_id, req.private_data);
            let peer = rdmacm::request(req.private_data);
            fill_private_data(&mut row, peer);
            row.mpi_port = peer.map(|peer| peer.port);
            (req.local_comm_id, None)
        }
        CmMessage::Rep(rep) => {
            row.qpn = Some(rep.local_qpn);
            row.starting_psn = Some(rep.starting_psn.value());
            row.protocol = ulp::of_reply(rep.private_data);
            fill_private_data(&mut row, rdmacm::reply(rep.private_data));
            (rep.local_comm_id, Some(rep.remote_comm_id))
        }
        CmMessage::Dreq(dreq) => {
            row.qpn = Some(dreq.remote_qpn);
            (dreq.local_comm_id, Some(dreq.remote_comm_id))
        }
        CmMessage::Mra(mra) => (mra.local_comm_id, Some(mra.remote_comm_id)),
        CmMessage::Rej(rej) => (rej.local_comm_id, Some(rej.remote_comm_id)),
        CmMessage::Rtu(ids) | CmMessage::Drep(ids) => (ids.local_comm_id, Some(ids.remote_comm_id)),
        CmMessage::SidrReq(sidr) => {
            row.service_id = Some(sidr.service_id);
            (sidr.request_id, None)
        }
        CmMessage::SidrRep(sidr) => {
            row.qpn = Some(sidr.qpn);
            row.service_id = Some(sidr.service_id);
            (sidr.request_id, None)
        }
        CmMessage::Lap(lap) => (lap.local_comm_id, Some(lap.remote_comm_id)),
        CmMessage::Apr(apr) => (apr.local_comm_id, Some(apr.remote_comm_id)),
    };
    row.local_comm_id = local;
    row.remote_comm_id = remote;
    Some(row)
}
