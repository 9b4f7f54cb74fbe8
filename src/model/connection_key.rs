//! The key of a packet's connection, and the kind of traffic that a packet counts as.

use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Qpn};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// The kind of traffic that a packet counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum TrafficKind {
    /// Application traffic.
    Data = 0,
    /// Destination queue pair 0 or 1.
    Management = 1,
    /// A multicast or permissive LID, a multicast GID or IP address.
    Multicast = 2,
}

impl TrafficKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Data, Self::Management, Self::Multicast];

    /// The kind of a packet between these endpoints to this queue pair.
    #[must_use]
    #[inline]
    pub fn of(src: Endpoint, dst: Endpoint, dest_qp: Qpn) -> Self {
        let is_group = |endpoint: Endpoint| endpoint.is_multicast() || endpoint.is_permissive();
        if dest_qp.is_management() {
            Self::Management
        } else if is_group(src) || is_group(dst) {
            Self::Multicast
        } else {
            Self::Data
        }
    }

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Management => "management",
            Self::Multicast => "multicast",
        }
    }
}

/// One direction of traffic to one queue pair. Only datagrams carry the source queue pair; the BTH
/// has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionKey {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// Kind of traffic.
    pub kind: TrafficKind,
    /// BTH service, opcode bits 7 to 5.
    pub service: u8,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
    /// The sender's queue pair for datagrams, 0 for the connected services.
    pub src_qp: Qpn,
}

/// Hashed for every packet, so the small fields share one word: five words instead of eight.
impl Hash for ConnectionKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.src.hash(state);
        self.dst.hash(state);
        let small = u64::from(self.service) << 2 | self.kind as u64;
        state.write_u64(small << 48 | u64::from(self.dest_qp.value()) << 24 | u64::from(self.src_qp.value()));
    }
}

impl ConnectionKey {
    /// The connection of a packet with this opcode. `extension` is the source queue pair of a
    /// datagram.
    #[must_use]
    #[inline]
    pub fn of((src, dst): (Endpoint, Endpoint), opcode: Opcode, dest_qp: Qpn, extension: u32) -> Self {
        let src_qp = if opcode.service() == Service::Ud { Qpn::new(extension) } else { Qpn::new(0) };
        Self { src, dst, kind: TrafficKind::of(src, dst, dest_qp), service: opcode.0 >> 5, dest_qp, src_qp }
    }

    /// Its two ports, the smaller one first: the same for both directions.
    #[must_use]
    pub fn port_pair(&self) -> (Endpoint, Endpoint) {
        (self.src.min(self.dst), self.src.max(self.dst))
    }

    /// True for datagrams (UD), which the transport neither acknowledges nor retransmits.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        self.service == 3
    }

    /// True if the transport numbers the packets and may retransmit them under the same PSN.
    /// Datagrams are not retransmitted, congestion notifications are not numbered.
    #[must_use]
    pub const fn can_be_retransmitted(&self) -> bool {
        !self.is_datagram() && self.service != 4
    }
}
