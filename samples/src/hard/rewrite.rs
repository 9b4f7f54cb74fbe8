//! Renames endpoints and queue pairs of a recording: addresses, queue pair numbers, several LIDs or
//! rails per port.

use std::collections::HashMap;

use ibscope_parsers::{Endpoint, Lid, Qpn};

use super::Recording;
use super::control::{self, ConnectionNames};
use super::frame::{PacketFrame, change_packets};

/// A queue pair: endpoint and number.
pub type QueuePairAddress = (Endpoint, u32);

/// New names of endpoints and queue pairs, and the sender of each queue pair.
///
/// The names are written to LRH or IP header, BTH and DETH, and to the connection messages that
/// name queue pairs: CM, Open MPI's udcm, UCX's wire-up. Checksums are recomputed.
#[derive(Clone, Debug, Default)]
pub struct AddressRewrite {
    /// New endpoint and number of a queue pair.
    pub ends: HashMap<QueuePairAddress, QueuePairAddress>,
    /// New address of all other queue pairs at an endpoint: management datagrams, ports without
    /// queue pairs in `ends`.
    pub hosts: HashMap<Endpoint, Endpoint>,
    /// The queue pair that sends to a connected queue pair; no packet names it.
    pub senders: HashMap<QueuePairAddress, QueuePairAddress>,
    /// New IPv4 addresses inside connection messages.
    pub addresses: HashMap<[u8; 4], [u8; 4]>,
    /// Turns a copy of a job into a different job: changes the numbers of workers, jobs and
    /// connections in connection messages. 0 changes nothing.
    pub identity: u32,
}

impl AddressRewrite {
    /// New name of a queue pair.
    #[must_use]
    pub fn rewritten_end(&self, end: QueuePairAddress) -> QueuePairAddress {
        self.ends.get(&end).copied().unwrap_or((self.host(end.0), end.1))
    }

    fn host(&self, endpoint: Endpoint) -> Endpoint {
        self.hosts.get(&endpoint).copied().unwrap_or(endpoint)
    }

    /// The recording with the new names. Records without an InfiniBand packet are unchanged.
    #[must_use]
    pub fn apply(&self, recording: &Recording) -> Recording {
        change_packets(recording, |_, frame, data| self.rename(frame, data))
    }

    /// Renames the ends of a packet, whose bytes are `data`.
    fn rename(&self, frame: &PacketFrame, data: &mut [u8]) {
        let receiver = (frame.dst, frame.dest_qp.value());
        let sender = match frame.src_qp {
            Some(src_qp) => Some((frame.src, src_qp.value())),
            None => self.senders.get(&receiver).copied().filter(|(endpoint, _)| *endpoint == frame.src),
        };
        let (dst, dest_qp) = self.rewritten_end(receiver);
        let (src, src_qp) = match sender {
            Some(sender) => {
                let (src, src_qp) = self.rewritten_end(sender);
                (src, Some(Qpn::new(src_qp)))
            }
            None => (self.host(frame.src), None),
        };
        frame.set_endpoints(data, src, dst);
        frame.set_queue_pairs(data, src_qp, Qpn::new(dest_qp));
        let payload_end = frame.payload_at + frame.payload_bytes;
        if let Some(payload) = data.get_mut(frame.payload_at..payload_end) {
            let own = |qpn: u32| self.ends.get(&(frame.src, qpn)).map(|end| end.1);
            let peer = |qpn: u32| self.ends.get(&(frame.dst, qpn)).map(|end| end.1);
            let names = ConnectionNames { own: &own, peer: &peer, addresses: &self.addresses, identity: self.identity };
            control::rename(frame, payload, &names);
        }
        frame.seal(data);
    }
}

/// Endpoint with this LID.
#[must_use]
pub const fn lid(lid: u16) -> Endpoint {
    Endpoint::from_lid(Lid(lid))
}
