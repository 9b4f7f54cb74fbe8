//! Describes the format of a file as text: container, byte order, time resolution.

use ibscope_parsers::frame::{Framing, LinkType};
use pcap_parser::{parse_pcap_header, parse_sectionheaderblock};

/// One line about the capture that starts with `head`; `framing` has parsed its interfaces.
pub(super) fn describe(head: &[u8], framing: &Framing, compression: &str) -> String {
    let mut link_types: Vec<String> =
        framing.interfaces().iter().map(|interface| interface.link_type.to_string()).collect();
    link_types.sort_unstable();
    link_types.dedup();
    let links = link_types.join(", ");
    let container = if let Ok((_, header)) = parse_pcap_header(head) {
        let order = if header.is_bigendian() { "big-endian" } else { "little-endian" };
        let unit = if header.is_nanosecond_precision() { "nanoseconds" } else { "microseconds" };
        let modified = if header.is_modified_format() { ", modified" } else { "" };
        format!(
            "pcap {}.{}{modified}, {order}, {unit}, snaplen {}",
            header.version_major, header.version_minor, header.snaplen
        )
    } else if let Ok((_, section)) = parse_sectionheaderblock(head) {
        let order = if section.big_endian() { "big-endian" } else { "little-endian" };
        format!("pcapng {}.{}, {order}", section.major_version, section.minor_version)
    } else {
        // pcap-parser does not support the big-endian modified format, which `Framing` accepts.
        "pcap".to_owned()
    };
    format!("{container}, {links}, {compression}")
}

/// The next step for a file that starts with these bytes and is no capture.
pub(super) const fn advice(head: &[u8]) -> &'static str {
    match head {
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => "This file is compressed with xz: decompress it first with `xz -d`",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "This file is compressed with bzip2: decompress it first with `bunzip2`",
        _ => "Captures in other formats can be converted: editcap -F pcapng IN OUT",
    }
}

/// Reason why captures of this link type cannot be analyzed; `None` if they can.
pub(super) fn unusable(link_type: LinkType) -> Option<&'static str> {
    match link_type {
        LinkType::ETHERNET
        | LinkType::NETLINK
        | LinkType::RAW
        | LinkType::SLL
        | LinkType::ERF
        | LinkType::INFINIBAND
        | LinkType::SLL2 => None,
        LinkType::IPOIB => Some(
            "contains IP packets without InfiniBand headers (no LRH, no BTH), so it shows no verbs or MPI traffic; capture \
             with ibdump on the port instead",
        ),
        _ => Some(
            "contains no InfiniBand or RoCE packets that ibscope can read; capture with ibdump or, for RoCE, tcpdump",
        ),
    }
}
