//! One record: fields of headers kept or cleared (`headers`), addresses exchanged, payload cleared, check sums computed anew.

use super::Anonymizer;
use super::bits::exchange;
use super::headers::{self, IPV4_BYTES, IPV6_BYTES, UDP_BYTES};
use super::management::{self, gid, lid};
use super::payload::{self, First};
use crate::model::{ConnectionKey, Kind};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::ib::crc::{self, CrcVerdict, vcrc, verify_icrc, verify_vcrc};
use ibscope_parsers::ib::{Grh, ICRC_BYTES, Lrh, Packet, VCRC_BYTES};
use ibscope_parsers::link::{self, Framed, Located, Location, NotInfiniband};
use ibscope_parsers::mpi::{Carrier, Form};
use std::collections::HashSet;
use std::ops::Range;

/// `EtherType` of pause and PFC frames, and the bytes of such a frame that say something.
const FLOW_CONTROL: u16 = 0x8808;
const PAUSE_BYTES: usize = 34;
/// Bytes of the header of a mirrored copy, and of the mark in it.
const MIRROR_BYTES: usize = 16;
const MIRROR_MARK: Range<usize> = 10..12;
/// ERF header without extensions; an extension is as long as its first byte and 7 of content.
const ERF_BYTES: usize = 16;
const ERF_EXTENSION_BYTES: usize = 8;
/// Reserved bytes and the number of the interface in a cooked header of version 2.
const SLL2_INTERFACE: Range<usize> = 2..8;

/// What is wrong with a record that does not get through.
pub(super) type Dropped = String;

impl Anonymizer {
    /// Rewrites a record in place. What cannot be vouched for is an error, and must not be written.
    pub(super) fn record(&mut self, data: &mut [u8], link_type: LinkType, original_bytes: u32) -> Result<(), Dropped> {
        let location = match link::locate(link_type, data, original_bytes) {
            Ok(Located::Infiniband(location)) => location,
            Ok(Located::Other(NotInfiniband::EtherType(FLOW_CONTROL))) if link_type == LinkType::ETHERNET => {
                return self.pause(data);
            }
            Ok(Located::Other(what)) => return Err(what.to_string()),
            Err(error) => return Err(format!("damaged or cut ({})", error.layer)),
        };
        self.packet(data, link_type, &location)
    }

    /// A pause frame straight behind the addresses of an Ethernet frame.
    fn pause(&mut self, data: &mut [u8]) -> Result<(), Dropped> {
        if data.get(12..14) != Some(&FLOW_CONTROL.to_be_bytes()) {
            return Err("Ethernet flow control behind a tag".to_owned());
        }
        self.macs(data, 0);
        clear(data, PAUSE_BYTES..usize::MAX);
        Ok(())
    }

    fn packet(&mut self, data: &mut [u8], link_type: LinkType, location: &Location) -> Result<(), Dropped> {
        let packet = Packet::parse_lax(data, location).map_err(|error| format!("damaged or cut ({})", error.layer))?;
        if let Some(stop) = packet.stop.filter(|stop| !stop.is_truncated()) {
            return Err(format!("damaged or cut ({})", stop.layer));
        }
        let opcode = packet.bth.opcode;
        if !opcode.is_known() {
            return Err(format!("opcode {:#04x}", opcode.0));
        }
        let network_bytes = location.start - location.network;
        if matches!(location.framed, Framed::RoceV2Ipv4 if network_bytes != IPV4_BYTES + UDP_BYTES)
            || matches!(location.framed, Framed::RoceV2Ipv6 if network_bytes != IPV6_BYTES + UDP_BYTES)
        {
            return Err("IP options".to_owned());
        }
        let was = Checks::of(data, location);
        let (payload_offset, payload_bytes, ext) = (packet.payload_offset, packet.payload_bytes, packet.ext);
        let dest_qp = packet.bth.dest_qp;
        let src_qp = ext.deth.map_or(0, |deth| deth.src_qp.value());
        let key = ConnectionKey::of((location.src, location.dst), opcode, dest_qp, src_qp);
        let form = self.known.forms.get(&key).copied();

        let payload_end = payload_offset.saturating_add(payload_bytes);
        let payload = part(data, payload_offset..payload_end);
        if key.kind == Kind::Management {
            self.tally.cleared_management += u64::from(!management::rewrite(payload, &mut self.names));
        } else {
            let q_key = ext.deth.map(|deth| deth.q_key);
            let first = (opcode.is_request() && (opcode.is_first() || opcode.is_only()))
                .then(|| Carrier::of(opcode, q_key, ext.reth.map_or(0, |reth| reth.dma_len)))
                .flatten()
                .map(|carrier| First {
                    carrier,
                    packet_bytes: payload_bytes as u32,
                    message_bytes: carrier.message_bytes(opcode, payload_bytes as u32),
                });
            let none = HashSet::new();
            let between = self.known.between.get(&(location.src, location.dst)).unwrap_or(&none);
            let spoken = form.or_else(|| first.as_ref()?.introduces(payload, between));
            match (first, spoken) {
                (Some(first), Some(form)) => {
                    let nobody = HashSet::new();
                    let own = self.known.queue_pairs.get(&location.src).unwrap_or(&nobody);
                    let cut = payload::rewrite(payload, &first, form, own, &mut self.names);
                    self.tally.cut_envelopes += u64::from(cut);
                }
                (Some(first), None) => payload::clear(payload, Some((&first, Form::Ob1))),
                (None, _) => payload.fill(0),
            }
        }
        // Pad, and what follows the packet: Ethernet's padding and check sum, or a mirror's.
        let end = location.end();
        clear(data, payload_end..end.saturating_sub(ICRC_BYTES));
        let behind = end + if location.framed == Framed::Native { VCRC_BYTES } else { 0 };
        clear(data, behind..usize::MAX);
        headers::network(data, location);
        headers::transport(data, payload_offset, opcode, form == Some(Form::Nccl), &mut self.names);
        self.addresses(data, link_type, location);
        was.restore(data, location);
        Ok(())
    }

    /// Exchanges the addresses of all headers, and clears what stands before them.
    fn addresses(&mut self, data: &mut [u8], link_type: LinkType, location: &Location) {
        let begin = match link_type {
            LinkType::ERF => {
                let header_bytes = ErfHeader::parse(data).map_or(0, |header| header.header_bytes);
                // Of extension headers the type stays; behind them stands a pad before Ethernet, which has none.
                for at in (ERF_BYTES..header_bytes).step_by(ERF_EXTENSION_BYTES) {
                    let end = (at + ERF_EXTENSION_BYTES).min(header_bytes);
                    let kept = usize::from(end == at + ERF_EXTENSION_BYTES);
                    clear(data, at + kept..end);
                }
                header_bytes
            }
            _ => 0,
        };
        match (location.framed, link_type) {
            (Framed::Native, _) => {
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
        if let Some((kind_at, at)) = headers::ether_type(link_type, begin).filter(|_| location.framed != Framed::Native)
        {
            headers::tags(data, kind_at, at, location.network, &mut self.names);
        }
        match location.framed {
            Framed::Native => {}
            Framed::RoceV1 => self.gids(data, location.start),
            Framed::RoceV2Ipv4 => {
                for at in [12, 16] {
                    exchange(data, location.network + at, |old| self.names.ipv4(old));
                }
            }
            Framed::RoceV2Ipv6 => self.gids(data, location.network),
        }
    }

    /// Those of a GRH or IPv6 header.
    fn gids(&mut self, data: &mut [u8], at: usize) {
        gid(data, at + 8, &mut self.names);
        gid(data, at + Grh::LEN - 16, &mut self.names);
    }

    fn macs(&mut self, data: &mut [u8], at: usize) {
        for at in [at, at + 6] {
            exchange(data, at, |old| self.names.mac(old));
        }
    }

    /// The sender's address of a cooked header, in a field of eight bytes; its length stands before it.
    fn cooked(&mut self, data: &mut [u8], length: Range<usize>, at: usize) {
        if data.get(length).and_then(<[u8]>::last) == Some(&6) {
            exchange(data, at, |old| self.names.mac(old));
            clear(data, at + 6..at + 8);
        } else {
            clear(data, at..at + 8);
        }
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

/// Which check sums fitted.
struct Checks {
    icrc: CrcVerdict,
    vcrc: CrcVerdict,
    /// `None` where there is none, or where it cannot be told.
    ip: Option<bool>,
    udp: Option<bool>,
}

impl Checks {
    fn of(data: &[u8], location: &Location) -> Self {
        let has_ip = location.framed == Framed::RoceV2Ipv4;
        let ip = data.get(location.network..location.network + IPV4_BYTES).filter(|_| has_ip);
        Self {
            icrc: verify_icrc(data, location),
            vcrc: verify_vcrc(data, location),
            ip: ip.map(|header| sum(header) == 0xFFFF),
            udp: udp_sum(data, location).map(|sum| sum == 0xFFFF),
        }
    }

    /// Makes those fit that did, and those not that did not. What cannot be computed is cleared.
    fn restore(&self, data: &mut [u8], location: &Location) {
        if let Some(fits) = self.ip {
            put(data, location.network + 10, 0);
            let sum = sum(data.get(location.network..location.network + IPV4_BYTES).unwrap_or_default());
            put(data, location.network + 10, if fits { !sum } else { sum });
        }
        let end = location.end();
        let is_bad = self.icrc == CrcVerdict::Bad;
        match crc::icrc(location.framed, data, location).filter(|_| data.len() >= end) {
            Some(icrc) => {
                let icrc = if is_bad { !icrc } else { icrc };
                data[end - ICRC_BYTES..end].copy_from_slice(&icrc.to_le_bytes());
            }
            None => clear(data, end.saturating_sub(ICRC_BYTES)..end),
        }
        if location.framed == Framed::Native {
            let sum = data.get(location.start..end).map(vcrc);
            let is_bad = self.vcrc == CrcVerdict::Bad;
            match sum.zip(data.get_mut(end..end + VCRC_BYTES)) {
                Some((sum, place)) => place.copy_from_slice(&(if is_bad { !sum } else { sum }).to_le_bytes()),
                None => clear(data, end..usize::MAX),
            }
            return;
        }
        if location.framed == Framed::RoceV1 {
            return;
        }
        let at = location.start - UDP_BYTES + 6;
        match self.udp {
            Some(fits) => {
                put(data, at, 0);
                let sum = !udp_sum_of(data, location).unwrap_or(0);
                // 0 stands for "none", and is written as its equal.
                let sum = if sum == 0 { 0xFFFF } else { sum };
                put(data, at, if fits { sum } else { sum ^ 0x5555 });
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

/// The sum of a UDP datagram that has a check sum and was captured whole: 0xFFFF where it fits.
fn udp_sum(data: &[u8], location: &Location) -> Option<u16> {
    let has_udp = matches!(location.framed, Framed::RoceV2Ipv4 | Framed::RoceV2Ipv6);
    let at = location.start.checked_sub(UDP_BYTES)?;
    (has_udp && data.get(at + 6..at + 8)? != [0, 0]).then(|| udp_sum_of(data, location)).flatten()
}

/// Addresses, protocol and length, then the datagram.
fn udp_sum_of(data: &[u8], location: &Location) -> Option<u16> {
    let start = location.start.checked_sub(UDP_BYTES)?;
    let datagram = data.get(start..location.end())?;
    let addresses = match location.framed {
        Framed::RoceV2Ipv4 => data.get(location.network + 12..location.network + 20)?,
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
