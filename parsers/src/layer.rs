//! Names of the layers that errors and truncated packets refer to.

use core::fmt;

/// A layer of a capture file or of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// 24-byte header of a classic pcap file.
    PcapHeader,
    /// Record of a classic pcap file.
    PcapRecord,
    /// Block of a pcapng file.
    PcapngBlock,
    /// ERF record header with its extension headers.
    Erf,
    /// Linux cooked header, version 1 or 2.
    Sll,
    /// Ethernet header.
    Ethernet,
    /// 802.1Q or 802.1ad tag.
    Vlan,
    /// VN-tag or E-tag of a port extender.
    PortExtender,
    /// MPLS label stack.
    Mpls,
    /// IPv4 header.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// UDP header.
    Udp,
    /// GRE header.
    Gre,
    /// ERSPAN header.
    Erspan,
    /// VXLAN or VXLAN-GPE header.
    Vxlan,
    /// GENEVE header.
    Geneve,
    /// Network service header.
    Nsh,
    /// sFlow datagram.
    Sflow,
    /// Header that a mirroring port puts before the mirror copy (ibdump `--decap`, mirrors in GRE).
    Mirror,
    /// Local route header.
    Lrh,
    /// Raw header (packets without InfiniBand transport).
    Rwh,
    /// Global route header.
    Grh,
    /// Base transport header.
    Bth,
    /// Extension headers after the BTH.
    ExtHeader,
    /// Payload and pad bytes.
    Payload,
    /// Invariant CRC.
    Icrc,
    /// Variant CRC.
    Vcrc,
    /// Management datagram.
    Mad,
    /// Communication management message.
    Cm,
    /// Envelope of an MPI library.
    Mpi,
}

impl Layer {
    /// Name used in messages and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PcapHeader => "pcap file header",
            Self::PcapRecord => "pcap record",
            Self::PcapngBlock => "pcapng block",
            Self::Erf => "ERF header",
            Self::Sll => "Linux cooked header",
            Self::Ethernet => "Ethernet header",
            Self::Vlan => "VLAN tag",
            Self::PortExtender => "port extender tag",
            Self::Mpls => "MPLS label",
            Self::Ipv4 => "IPv4 header",
            Self::Ipv6 => "IPv6 header",
            Self::Udp => "UDP header",
            Self::Gre => "GRE header",
            Self::Erspan => "ERSPAN header",
            Self::Vxlan => "VXLAN header",
            Self::Geneve => "GENEVE header",
            Self::Nsh => "NSH",
            Self::Sflow => "sFlow datagram",
            Self::Mirror => "mirror header",
            Self::Lrh => "LRH",
            Self::Rwh => "raw header",
            Self::Grh => "GRH",
            Self::Bth => "BTH",
            Self::ExtHeader => "extension header",
            Self::Payload => "payload",
            Self::Icrc => "ICRC",
            Self::Vcrc => "VCRC",
            Self::Mad => "MAD",
            Self::Cm => "CM message",
            Self::Mpi => "MPI envelope",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
