//! Rewrites one record: masks headers, replaces addresses, clears payload, recomputes checksums.

use super::Anonymizer;
use super::bits::replace_bytes;
use super::headers::{self, IPV4_BYTES, IPV6_BYTES, UDP_BYTES};
use super::management::{self, gid, lid};
use super::payload::{self, FirstPacketPayload};
use crate::model::{ConnectionKey, TrafficKind};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::ib::crc::{self, CrcVerdict, vcrc, verify_icrc, verify_vcrc};
use ibscope_parsers::ib::{Grh, ICRC_BYTES, Lrh, Packet, VCRC_BYTES};
use ibscope_parsers::link::{self, Encapsulation, LinkContent, Location, NotInfiniband, TunnelPath};
use ibscope_parsers::mpi::{Carrier, LibraryStack};
use std::collections::HashSet;
use std::ops::Range;

/// `EtherType` of pause and PFC frames, and the length of such a frame without padding.
const FLOW_CONTROL: u16 = 0x8808;
const PAUSE_BYTES: usize = 34;
/// Length of the header that a switch puts before a mirrored packet, and the bytes of its magic
/// number.
const MIRROR_BYTES: usize = 16;
const MIRROR_MARK: Range<usize> = 10..12;
/// Length of the ERF header without extensions, and of an extension: a type byte and 7 bytes of
/// content.
const ERF_BYTES: usize = 16;
const ERF_EXTENSION_BYTES: usize = 8;
/// Reserved bytes and interface index in a Linux cooked header, version 2.
const SLL2_INTERFACE: Range<usize> = 2..8;

/// The reason why a record is dropped.
pub(super) type DropReason = String;

impl Anonymizer {
    /// Rewrites a record in place. If the frame was in tunnels, they are removed, and `data` holds
    /// the inner frame alone. After an error, the record must not be written.
    pub(super) fn record(
        &mut self,
        data: &mut Vec<u8>,
        link_type: LinkType,
        original_bytes: u32,
    ) -> Result<(), DropReason> {
        let mut path = TunnelPath::default();
        let found = link::locate_in_tunnels(link_type, data, original_bytes, &mut path);
        let tunnel = path.outermost().map_or_else(String::new, |kind| format!(" in {kind}"));
        match found {
            Ok(LinkContent::Infiniband(location)) if location.tunnels.is_empty() => {
                self.packet(data, link_type, &location)
            }
            Ok(LinkContent::Infiniband(_)) => {
                let frame_at = path.frame_at();
                let location = bare_frame(data, frame_at, link_type, original_bytes);
                let location = location.ok_or_else(|| format!("RoCE{tunnel} without an Ethernet header"))?;
                data.drain(..frame_at);
                self.packet(data, link_type, &location)
            }
            Ok(LinkContent::Other(NotInfiniband::EtherType(FLOW_CONTROL)))
                if link_type == LinkType::ETHERNET && path.depth() == 0 =>
            {
                self.pause(data)
            }
            Ok(LinkContent::Other(what)) => Err(format!("{what}{tunnel}")),
            Err(error) => Err(format!("damaged or truncated ({}{tunnel})", error.layer)),
        }
    }

    /// Rewrites a pause frame without tags.
    fn pause(&mut self, data: &mut [u8]) -> Result<(), DropReason> {
        if data.get(12..14) != Some(&FLOW_CONTROL.to_be_bytes()) {
            return Err("Ethernet flow control with a tag".to_owned());
        }
        self.macs(data, 0);
        clear(data, PAUSE_BYTES..usize::MAX);
        Ok(())
    }

    fn packet(&mut self, data: &mut [u8], link_type: LinkType, location: &Location) -> Result<(), DropReason> {
        let packet =
            Packet::parse_lax(data, location).map_err(|error| format!("damaged or truncated ({})", error.layer))?;
        if let Some(stop) = packet.error.filter(|stop| !stop.is_truncated()) {
            return Err(format!("damaged or truncated ({})", stop.layer));
        }
        let opcode = packet.bth.opcode;
        if !opcode.is_known() {
            return Err(format!("opcode {:#04x}", opcode.0));
        }
        let network_bytes = location.start - location.network;
        if matches!(location.encapsulation, Encapsulation::RoceV2Ipv4 if network_bytes != IPV4_BYTES + UDP_BYTES)
            || matches!(location.encapsulation, Encapsulation::RoceV2Ipv6 if network_bytes != IPV6_BYTES + UDP_BYTES)
        {
            return Err("IP options".to_owned());
        }
        let was = Checksums::of(data, location);
        let (payload_offset, payload_bytes, ext) = (packet.payload_offset, packet.payload_bytes, packet.ext);
        let (dest_qp, psn) = (packet.bth.dest_qp, packet.bth.psn);
        let src_qp = ext.deth.map_or(0, |deth| deth.src_qp.value());
        let key = ConnectionKey::of((location.src, location.dst), opcode, dest_qp, src_qp);
        let stack = self.known.stacks.get(&key).copied();

        let payload_end = payload_offset.saturating_add(payload_bytes);
        let payload = part(data, payload_offset..payload_end);
        if key.kind == TrafficKind::Management {
            self.tally.cleared_management += u64::from(!management::rewrite(payload, &mut self.names));
        } else {
            let q_key = ext.deth.map(|deth| deth.q_key);
            let first = (opcode.is_request() && (opcode.is_first() || opcode.is_only()))
                .then(|| Carrier::from_opcode(opcode, q_key, ext.reth.map_or(0, |reth| reth.dma_len)))
                .flatten()
                .map(|carrier| FirstPacketPayload {
                    carrier,
                    packet_bytes: payload_bytes as u32,
                    message_bytes: carrier.message_bytes(opcode, payload_bytes as u32),
                });
            let none = HashSet::new();
            let between = self.known.between.get(&(location.src, location.dst)).unwrap_or(&none);
            let envelope_stack = stack.or_else(|| first.as_ref()?.connection_message_stack(payload, between));
            let is_nccl = stack == Some(LibraryStack::Nccl);
            let is_list = is_nccl && self.writes.is_list(&key, (opcode, psn), ext.reth, payload);
            match (first, envelope_stack) {
                _ if is_list => {}
                (Some(first), Some(stack)) => {
                    let nobody = HashSet::new();
                    let own = self.known.queue_pairs.get(&location.src).unwrap_or(&nobody);
                    let has_more = payload::rewrite(payload, &first, stack, own, &mut self.names);
                    self.tally.cleared_envelopes += u64::from(has_more);
                }
                (Some(first), None) => payload::clear(payload, Some((&first, LibraryStack::Ob1))),
                (None, _) => payload.fill(0),
            }
        }
        // Padding, and the bytes after the packet: Ethernet's padding and checksum, or a mirror's
        // trailer.
        let end = location.end();
        clear(data, payload_end..end.saturating_sub(ICRC_BYTES));
        let behind = end + if location.encapsulation == Encapsulation::Native { VCRC_BYTES } else { 0 };
        clear(data, behind..usize::MAX);
        headers::network(data, location, &mut self.names);
        headers::transport(data, payload_offset, opcode, stack == Some(LibraryStack::Nccl), &mut self.names);
        self.addresses(data, link_type, location);
        was.restore(data, location);
        Ok(())
    }

    /// Replaces the addresses in all headers. Clears the contents of ERF extension headers, and all
    /// bytes after the LRH in the header of a mirror, except the magic number.
    fn addresses(&mut self, data: &mut [u8], link_type: LinkType, location: &Location) {
        let begin = match link_type {
            LinkType::ERF => {
                let header_bytes = ErfHeader::parse(data).map_or(0, |header| header.header_bytes);
                // Keep the type of an extension header. The pad before an Ethernet frame has no
                // type.
                for at in (ERF_BYTES..header_bytes).step_by(ERF_EXTENSION_BYTES) {
                    let end = (at + ERF_EXTENSION_BYTES).min(header_bytes);
                    let kept = usize::from(end == at + ERF_EXTENSION_BYTES);
                    clear(data, at + kept..end);
                }
                header_bytes
            }
            _ => 0,
        };
        match (location.encapsulation, link_type) {
            (Encapsulation::Native, _) => {
                if location.start == begin + MIRROR_BYTES {
                    headers::outer(data, begin);
                    lid(data, begin + 2, &mut self.names);
                    lid(data, begin + 6, &mut self.names);
                    clear(data, begin + Lrh::LEN..begin + MIRROR_MARK.start);
                    clear(data, begin + MIRROR_MARK.end..location.start);
                }
                lid(data, location.start + 2, &mut self.names);
                lid(data, location.start + 6, &mut self.names);
                if data.get(location.start + 1).is_some_and(|byte| byte & 3 == Lrh::LNH_GLOBAL) {
                    self.gids(data, location.start + Lrh::LEN);
                }
            }
            (_, LinkType::SLL) => self.cooked(data, 4..6, 6),
            (_, LinkType::SLL2) => {
                clear(data, SLL2_INTERFACE);
                self.cooked(data, 11..12, 12);
            }
            (_, LinkType::RAW) => {}
            _ => self.macs(data, begin),
        }
        if let Some((kind_at, at)) =
            headers::ether_type(link_type, begin).filter(|_| location.encapsulation != Encapsulation::Native)
        {
            headers::tags(data, kind_at, at, location.network, &mut self.names);
        }
        match location.encapsulation {
            Encapsulation::Native => {}
            Encapsulation::RoceV1 => self.gids(data, location.start),
            Encapsulation::RoceV2Ipv4 => {
                for at in [12, 16] {
                    replace_bytes(data, location.network + at, |old| self.names.ipv4(old));
                }
            }
            Encapsulation::RoceV2Ipv6 => self.gids(data, location.network),
        }
    }

    /// Replaces the addresses of a GRH or IPv6 header.
    fn gids(&mut self, data: &mut [u8], at: usize) {
        gid(data, at + 8, &mut self.names);
        gid(data, at + Grh::LEN - 16, &mut self.names);
    }

    fn macs(&mut self, data: &mut [u8], at: usize) {
        for at in [at, at + 6] {
            replace_bytes(data, at, |old| self.names.mac(old));
        }
    }

    /// Replaces the sender address in a Linux cooked header: the eight bytes at `at`. `length` is
    /// the byte range of the address length field.
    fn cooked(&mut self, data: &mut [u8], length: Range<usize>, at: usize) {
        if data.get(length).and_then(<[u8]>::last) == Some(&6) {
            replace_bytes(data, at, |old| self.names.mac(old));
            clear(data, at + 6..at + 8);
        } else {
            clear(data, at..at + 8);
        }
    }
}

/// The packet in the frame at `frame_at` without the tunnels before it. `None` without tunnels, if
/// the inner frame has no Ethernet header, or if the link type of the file is not Ethernet, because
/// its records do not start with an Ethernet header.
fn bare_frame(data: &[u8], frame_at: usize, link_type: LinkType, original_bytes: u32) -> Option<Location> {
    let frame = data.get(frame_at..).filter(|_| frame_at > 0 && link_type == LinkType::ETHERNET)?;
    match link::locate(link_type, frame, original_bytes.checked_sub(frame_at as u32)?) {
        Ok(LinkContent::Infiniband(location)) if location.tunnels.is_empty() => Some(location),
        _ => None,
    }
}

/// The captured part of a range.
fn part(data: &mut [u8], range: Range<usize>) -> &mut [u8] {
    let end = range.end.min(data.len());
    data.get_mut(range.start.min(end)..end).unwrap_or_default()
}

fn clear(data: &mut [u8], range: Range<usize>) {
    part(data, range).fill(0);
}

/// Results of the checksum verification before the rewrite.
struct Checksums {
    icrc: CrcVerdict,
    vcrc: CrcVerdict,
    /// `None` if there is no checksum, or if it cannot be verified.
    ip: Option<bool>,
    udp: Option<bool>,
}

impl Checksums {
    fn of(data: &[u8], location: &Location) -> Self {
        let has_ip = location.encapsulation == Encapsulation::RoceV2Ipv4;
        let ip = data.get(location.network..location.network + IPV4_BYTES).filter(|_| has_ip);
        Self {
            icrc: verify_icrc(data, location),
            vcrc: verify_vcrc(data, location),
            ip: ip.map(|header| sum(header) == 0xFFFF),
            udp: udp_sum(data, location).map(|sum| sum == 0xFFFF),
        }
    }

    /// Computes new checksums. Where a checksum was wrong before the rewrite, the new one is wrong
    /// too. Clears checksums that cannot be computed.
    fn restore(&self, data: &mut [u8], location: &Location) {
        if let Some(is_valid) = self.ip {
            put(data, location.network + 10, 0);
            let sum = sum(data.get(location.network..location.network + IPV4_BYTES).unwrap_or_default());
            put(data, location.network + 10, if is_valid { !sum } else { sum });
        }
        let end = location.end();
        let is_bad = self.icrc == CrcVerdict::Bad;
        match crc::icrc(location.encapsulation, data, location).filter(|_| data.len() >= end) {
            Some(icrc) => {
                let icrc = if is_bad { !icrc } else { icrc };
                data[end - ICRC_BYTES..end].copy_from_slice(&icrc.to_le_bytes());
            }
            None => clear(data, end.saturating_sub(ICRC_BYTES)..end),
        }
        if location.encapsulation == Encapsulation::Native {
            let sum = data.get(location.start..end).map(vcrc);
            let is_bad = self.vcrc == CrcVerdict::Bad;
            match sum.zip(data.get_mut(end..end + VCRC_BYTES)) {
                Some((sum, place)) => place.copy_from_slice(&(if is_bad { !sum } else { sum }).to_le_bytes()),
                None => clear(data, end..usize::MAX),
            }
            return;
        }
        if location.encapsulation == Encapsulation::RoceV1 {
            return;
        }
        let at = location.start - UDP_BYTES + 6;
        match self.udp {
            Some(is_valid) => {
                put(data, at, 0);
                let sum = !udp_sum_of(data, location).unwrap_or(0);
                // The checksum 0 means "none", so 0 is sent as 0xFFFF.
                let sum = if sum == 0 { 0xFFFF } else { sum };
                put(data, at, if is_valid { sum } else { sum ^ 0x5555 });
            }
            None => put(data, at, 0),
        }
    }
}

fn put(data: &mut [u8], at: usize, value: u16) {
    if let Some(place) = data.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The sum of a UDP datagram that has a checksum and was captured whole: 0xFFFF if the checksum is
/// right.
fn udp_sum(data: &[u8], location: &Location) -> Option<u16> {
    let has_udp = matches!(location.encapsulation, Encapsulation::RoceV2Ipv4 | Encapsulation::RoceV2Ipv6);
    let at = location.start.checked_sub(UDP_BYTES)?;
    (has_udp && data.get(at + 6..at + 8)? != [0, 0]).then(|| udp_sum_of(data, location)).flatten()
}

/// The sum of the pseudo header (addresses, protocol, length) and the datagram.
fn udp_sum_of(data: &[u8], location: &Location) -> Option<u16> {
    let start = location.start.checked_sub(UDP_BYTES)?;
    let datagram = data.get(start..location.end())?;
    let addresses = match location.encapsulation {
        Encapsulation::RoceV2Ipv4 => data.get(location.network + 12..location.network + 20)?,
        _ => data.get(location.network + 8..location.network + 40)?,
    };
    let pseudo = [addresses, &(datagram.len() as u32).to_be_bytes(), &[0, 17]].concat();
    let (a, b) = (u32::from(sum(&pseudo)), u32::from(sum(datagram)));
    Some(fold(a + b))
}

/// The ones' complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |byte| u32::from(*byte)));
    words.fold(0, |sum, word| fold(u32::from(sum) + word))
}

const fn fold(sum: u32) -> u16 {
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}
