//! CM exchanges in which Open MPI's `openib` states job and ranks.
//!
//! CM messages go in; exchanges of REQ and REP come out. Private data belong to the program that
//! listens at the service, so a single message proves nothing: the reply of an NFS server may parse
//! as "rank 0". Invariant: ranks of an exchange count only if REQ and REP belong together, both
//! state the same job, the same receive queue and different ranks, and the REQ asks for a TCP port
//! of the IP CM service. That port must be one on which the replier listens, if REQs of the replier
//! state any.

use crate::model::QueuePair;
use crate::model::profile::CmRow;
use ibscope_parsers::Endpoint;
use ibscope_parsers::ulp::tcp_port;
use std::collections::{BTreeMap, BTreeSet};

/// A REQ and the REP to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmExchange {
    pub(super) requester: QueuePair,
    pub(super) replier: QueuePair,
    /// Both, as the messages name them.
    pub(super) named: [QueuePair; 2],
    /// The PSNs that requester and replier expect first.
    pub(super) first_psns: (Option<u32>, Option<u32>),
    /// Job and ranks, if both messages state them consistently.
    pub(super) stated_ranks: Option<CmRanks>,
}

/// The job and the two ranks that an exchange states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CmRanks {
    pub(super) job: u32,
    pub(super) requester: u32,
    pub(super) replier: u32,
}

/// TCP ports on which processes listen, by endpoint, job and rank, as the processes' REQs state
/// them.
type ListeningPorts = BTreeMap<(Endpoint, u32, u32), BTreeSet<u16>>;

fn listening_ports(cm: &[CmRow]) -> ListeningPorts {
    let mut listening = ListeningPorts::new();
    for row in cm {
        if let (Some(job), Some(rank), Some(port)) = (row.mpi_job, row.world_rank, row.mpi_port) {
            listening.entry((row.src, job, rank)).or_default().insert(port);
        }
    }
    listening
}

/// The exchanges with both REQ and REP in the captures.
pub(super) fn exchanges(cm: &[CmRow]) -> Vec<CmExchange> {
    let requests: BTreeMap<_, &CmRow> =
        cm.iter().filter(|row| row.message == "REQ").map(|row| ((row.src, row.dst, row.local_comm_id), row)).collect();
    let listening = listening_ports(cm);
    let exchange = |reply: &CmRow| {
        let request = requests.get(&(reply.dst, reply.src, reply.remote_comm_id?))?;
        let requester = QueuePair { endpoint: request.src, qpn: request.qpn? };
        let replier = QueuePair { endpoint: reply.src, qpn: reply.qpn? };
        Some(CmExchange {
            requester,
            replier,
            named: [requester, replier],
            first_psns: (request.starting_psn, reply.starting_psn),
            stated_ranks: stated_ranks(request, reply, &listening),
        })
    };
    cm.iter().filter(|row| row.message == "REP").filter_map(exchange).collect()
}

fn stated_ranks(request: &CmRow, reply: &CmRow, listening: &ListeningPorts) -> Option<CmRanks> {
    let (job, requester, replier) = (request.mpi_job?, request.world_rank?, reply.world_rank?);
    let port = tcp_port(request.service_id?)?;
    let listens = listening.get(&(reply.src, job, replier)).is_none_or(|ports| ports.contains(&port));
    let agree = reply.mpi_job == Some(job) && reply.mpi_queue == request.mpi_queue && requester != replier;
    (agree && listens).then_some(CmRanks { job, requester, replier })
}

/// Removes job and rank from rows without a consistent exchange: their private data are something
/// else.
pub(super) fn clear_contradicted_ranks(cm: &mut [CmRow]) {
    let agreed: BTreeSet<QueuePair> = exchanges(cm)
        .iter()
        .filter(|exchange| exchange.stated_ranks.is_some())
        .flat_map(|exchange| [exchange.requester, exchange.replier])
        .collect();
    for row in cm {
        let end = row.qpn.map(|qpn| QueuePair { endpoint: row.src, qpn });
        if !end.is_some_and(|end| agreed.contains(&end)) {
            (row.world_rank, row.mpi_job, row.mpi_port, row.mpi_queue) = (None, None, None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::ulp::IP_CM_TCP;
    use ibscope_parsers::{Lid, Qpn};

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
            protocol: None,
            service_id: (message == "REQ").then_some(IP_CM_TCP | 0x7E3F),
            world_rank: Some(rank),
            mpi_job: Some(0x4C14_0001),
            mpi_port: (message == "REQ").then_some(0x887A),
            mpi_queue: Some(0),
        }
    }

    #[test]
    fn both_messages_of_an_exchange_must_agree() {
        let good = [row("REQ", (18, 17), (5, None), 1), row("REP", (17, 18), (9, Some(5)), 0)];
        let stated = |rows: &[CmRow]| exchanges(rows).first().and_then(|exchange| exchange.stated_ranks);
        assert_eq!(stated(&good), Some(CmRanks { job: 0x4C14_0001, requester: 1, replier: 0 }));
        let changed = |change: &dyn Fn(&mut [CmRow; 2])| {
            let mut rows = good.clone();
            change(&mut rows);
            let found = stated(&rows);
            clear_contradicted_ranks(&mut rows);
            assert!(found.is_some() || rows.iter().all(|row| row.world_rank.is_none()));
            found
        };
        assert_eq!(changed(&|rows| rows[0].world_rank = None), None, "one message states no rank");
        assert_eq!(changed(&|rows| rows[1].mpi_job = Some(2)), None, "another job");
        assert_eq!(changed(&|rows| rows[1].world_rank = Some(1)), None, "a process does not connect to itself");
        assert_eq!(changed(&|rows| rows[0].service_id = Some(0x4E51)), None, "not a TCP port");
        assert_eq!(changed(&|rows| rows[1].mpi_queue = Some(1)), None, "another queue");
        assert_eq!(changed(&|rows| rows[1].remote_comm_id = Some(6)), None, "the reply is to another request");
        assert!(changed(&|_| {}).is_some());
        // Rank 0 sends a REQ to rank 1 as well, and states its own listening port.
        let own = |port| CmRow { mpi_port: Some(port), ..row("REQ", (17, 18), (7, None), 0) };
        let [request, reply] = good.clone();
        assert!(stated(&[request.clone(), reply.clone(), own(0x7E3F)]).is_some());
        assert_eq!(stated(&[request, reply, own(0x4E51)]), None, "the replier listens on another port");
    }
}
