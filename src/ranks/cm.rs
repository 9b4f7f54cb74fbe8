//! CM exchanges in which Open MPI's `openib` states job and ranks.
//!
//! Private data belong to whoever listens at the service, so one message proves nothing: an NFS server answers with bytes
//! that parse as "rank 0". An exchange counts where REQ and REP belong together, both state the same job and different
//! ranks, and the service that the REQ asks for is the port at which the replier says that it listens.

use crate::model::QueuePair;
use crate::model::profile::CmRow;
use std::collections::BTreeMap;

/// Service ids of the RDMA IP CM service, port space TCP (InfiniBand Architecture, annex A11): the port is in the
/// lowest 16 bits.
const IP_CM_TCP: u64 = 0x0000_0000_0106_0000;

/// A REQ and the REP that answers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) requester: QueuePair,
    pub(super) replier: QueuePair,
    /// What the REQ asked for.
    pub(super) service_id: Option<u64>,
    /// Job and the ranks of requester and replier, where both state them.
    pub(super) stated: Option<Stated>,
}

/// What both ends of an exchange state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stated {
    pub(super) job: u32,
    pub(super) requester: u32,
    pub(super) replier: u32,
}

/// The port of an IP CM service id of the TCP port space.
pub(super) fn tcp_port(service_id: u64) -> Option<u16> {
    (service_id & !0xFFFF == IP_CM_TCP).then_some(service_id as u16)
}

/// The exchanges of which both REQ and REP were captured.
pub(super) fn exchanges(cm: &[CmRow]) -> Vec<Exchange> {
    let requests: BTreeMap<_, &CmRow> =
        cm.iter().filter(|row| row.message == "REQ").map(|row| ((row.src, row.dst, row.local_comm_id), row)).collect();
    let exchange = |reply: &CmRow| {
        let request = requests.get(&(reply.dst, reply.src, reply.remote_comm_id?))?;
        Some(Exchange {
            requester: QueuePair { endpoint: request.src, qpn: request.qpn? },
            replier: QueuePair { endpoint: reply.src, qpn: reply.qpn? },
            service_id: request.service_id,
            stated: stated(request, reply),
        })
    };
    cm.iter().filter(|row| row.message == "REP").filter_map(exchange).collect()
}

fn stated(request: &CmRow, reply: &CmRow) -> Option<Stated> {
    let (job, requester, replier) = (request.mpi_job?, request.world_rank?, reply.world_rank?);
    let listens = tcp_port(request.service_id?).is_some_and(|port| Some(port) == reply.mpi_port);
    (reply.mpi_job == Some(job) && requester != replier && listens).then_some(Stated { job, requester, replier })
}

/// Takes the rank out of rows whose exchange does not agree: what parses as one is something else.
pub(super) fn keep_agreed(cm: &mut [CmRow]) {
    let agreed: std::collections::BTreeSet<QueuePair> = exchanges(cm)
        .iter()
        .filter(|exchange| exchange.stated.is_some())
        .flat_map(|exchange| [exchange.requester, exchange.replier])
        .collect();
    for row in cm {
        let end = row.qpn.map(|qpn| QueuePair { endpoint: row.src, qpn });
        if !end.is_some_and(|end| agreed.contains(&end)) {
            (row.world_rank, row.mpi_job, row.mpi_port) = (None, None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::{Endpoint, Lid, Qpn};

    fn row(message: &str, (src, dst): (u16, u16), ids: (u32, Option<u32>), rank: u32) -> CmRow {
        CmRow {
            time_ns: 0,
            src: Endpoint::from_lid(Lid(src)),
            dst: Endpoint::from_lid(Lid(dst)),
            message: message.to_owned(),
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            qpn: Some(Qpn::new(u32::from(src))),
            starting_psn: None,
            service_id: (message == "REQ").then_some(IP_CM_TCP | 0x7E3F),
            world_rank: Some(rank),
            mpi_job: Some(0x4C14_0001),
            mpi_port: Some(0x7E3F),
        }
    }

    #[test]
    fn both_sides_of_an_exchange_have_to_agree() {
        let good = [row("REQ", (18, 17), (5, None), 1), row("REP", (17, 18), (9, Some(5)), 0)];
        let stated = |rows: &[CmRow]| exchanges(rows).first().and_then(|exchange| exchange.stated);
        assert_eq!(stated(&good), Some(Stated { job: 0x4C14_0001, requester: 1, replier: 0 }));
        let changed = |change: &dyn Fn(&mut [CmRow; 2])| {
            let mut rows = good.clone();
            change(&mut rows);
            let found = stated(&rows);
            keep_agreed(&mut rows);
            assert!(found.is_some() || rows.iter().all(|row| row.world_rank.is_none()));
            found
        };
        assert_eq!(changed(&|rows| rows[0].world_rank = None), None, "one side says nothing");
        assert_eq!(changed(&|rows| rows[1].mpi_job = Some(2)), None, "another job");
        assert_eq!(changed(&|rows| rows[1].world_rank = Some(1)), None, "a process does not connect to itself");
        assert_eq!(changed(&|rows| rows[0].service_id = Some(IP_CM_TCP | 0x4E51)), None, "NFS listens there");
        assert_eq!(changed(&|rows| rows[1].remote_comm_id = Some(6)), None, "it answers another request");
        assert!(changed(&|_| {}).is_some());
    }
}
