//! pcapng (draft-ietf-opsawg-pcapng): sections of blocks; each block has a type, a length, a body
//! and the length again.
//!
//! Section header, interface description, enhanced, simple and obsolete packet blocks and interface
//! statistics are parsed. All other blocks are skipped by their length.
//!
//! Two kinds of blocks state dropped packets: a packet block those between its packet and the one
//! before it, a statistics block those since the start of the capture. Both may state the same drops,
//! so the larger sum of an interface counts. Invariant: interfaces of different sections are
//! different interfaces.

use super::{ByteOrder, CaptureItem, Framing, Interface, InterfaceDrops, LinkType, Record, Statistics, erf};
use crate::error::{ParseError, take};
use crate::layer::Layer;
use crate::time::Resolution;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nom::number::Endianness;
use nom::number::complete::{i64, u8, u16, u32, u64};
use nom::{IResult, Parser};

/// Block type of a section header; it reads the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0A0D_0D0A;
/// Limit of interfaces per section, which bounds the memory; no real capture has that many.
const MAX_INTERFACES: usize = 1 << 16;
/// Limit of interfaces per section whose drops are counted; a damaged capture may name any number.
const MAX_DROPPING_INTERFACES: usize = 1 << 12;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
/// Length of the type field and of the two length fields.
const MIN_BLOCK_BYTES: u32 = 12;
/// Length of the fixed part of enhanced and obsolete packet blocks.
const PACKET_HEAD_BYTES: usize = 20;

const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_OSDROP: u16 = 7;
const EPB_DROPCOUNT: u16 = 4;
/// Drops count of an obsolete packet block that states no number.
const UNKNOWN_DROPS: u16 = 0xFFFF;

/// The current section of the file.
#[derive(Clone, Debug)]
pub struct Section {
    order: ByteOrder,
    /// Shared with clones of the section; an interface description copies the list if a clone is
    /// alive.
    interfaces: Arc<Vec<Interface>>,
    /// Drops by interface, shared likewise: only interfaces that dropped packets.
    drops: Arc<BTreeMap<u32, StatedDrops>>,
    /// Drops in the sections before this one, and those that were not counted.
    earlier_drops: InterfaceDrops,
}

/// Packets that an interface dropped, as the blocks so far state.
#[derive(Clone, Copy, Debug, Default)]
struct StatedDrops {
    /// The largest number of a statistics block. It only grows, so it is the last.
    in_statistics: u64,
    /// The sum of the numbers of packet blocks.
    before_packets: u64,
}

impl Section {
    pub(super) fn detect(head: &[u8]) -> Result<Self, ParseError> {
        let [.., a, b, c, d] = *take::<12>(head, Layer::PcapHeader)?;
        Ok(Self::new(byte_order([a, b, c, d])?, InterfaceDrops::default()))
    }

    fn new(order: ByteOrder, earlier_drops: InterfaceDrops) -> Self {
        Self { order, interfaces: Arc::default(), drops: Arc::default(), earlier_drops }
    }

    /// Packets that the interfaces dropped in all sections so far.
    pub(super) fn interface_drops(&self) -> InterfaceDrops {
        let own = self.drops.values().map(|drops| drops.in_statistics.max(drops.before_packets));
        let InterfaceDrops { packets, left_out } = self.earlier_drops;
        InterfaceDrops { packets: own.fold(packets, u64::saturating_add), left_out }
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn next<'a>(&mut self, input: &'a [u8]) -> Result<(CaptureItem<'a>, usize), ParseError> {
        let h = take::<12>(input, Layer::PcapngBlock)?;
        let is_section = [h[0], h[1], h[2], h[3]] == SECTION_HEADER.to_be_bytes();
        let order = if is_section { byte_order([h[8], h[9], h[10], h[11]])? } else { self.order };
        let block_type = order.u32([h[0], h[1], h[2], h[3]]);
        let total = order.u32([h[4], h[5], h[6], h[7]]);
        let length = total as usize;
        if total < MIN_BLOCK_BYTES || !total.is_multiple_of(4) || length > Framing::MAX_RECORD_BYTES {
            return Err(invalid("Block Total Length", total));
        }
        let Some((block, trailer)) = input.get(8..length).and_then(<[u8]>::split_last_chunk) else {
            return Err(ParseError::truncated(Layer::PcapngBlock, length, input.len()));
        };
        let trailing = order.u32(*trailer);
        if trailing != total {
            return Err(invalid("trailing Block Total Length", trailing));
        }
        let item = match block_type {
            ENHANCED_PACKET => {
                let record = self.enhanced_packet(block, total)?;
                self.note_packet(&record, drop_count(block, record.data.len(), order));
                CaptureItem::Record(record)
            }
            SIMPLE_PACKET => {
                let record = self.simple_packet(block, total)?;
                self.note_packet(&record, 0);
                CaptureItem::Record(record)
            }
            OBSOLETE_PACKET => {
                let (record, dropped) = self.obsolete_packet(block, total)?;
                self.note_packet(&record, dropped);
                CaptureItem::Record(record)
            }
            INTERFACE_STATISTICS => {
                let statistics = self.statistics(block, total)?;
                let [if_dropped, os_dropped] =
                    [statistics.if_dropped, statistics.os_dropped].map(|dropped| dropped.unwrap_or(0));
                let dropped = if_dropped.saturating_add(os_dropped);
                if dropped > 0 {
                    self.note_drops(statistics.interface, |own| own.in_statistics = own.in_statistics.max(dropped));
                }
                CaptureItem::Statistics(statistics)
            }
            INTERFACE_DESCRIPTION => {
                if self.interfaces.len() >= MAX_INTERFACES {
                    return Err(ParseError::invalid(
                        Layer::PcapngBlock,
                        "number of interfaces",
                        MAX_INTERFACES as u64 + 1,
                    ));
                }
                let interface = interface_description(block, order.nom(), total)?;
                Arc::make_mut(&mut self.interfaces).push(interface);
                CaptureItem::Other
            }
            SECTION_HEADER => {
                section_header(block, order.nom(), total)?;
                *self = Self::new(order, self.interface_drops());
                CaptureItem::Other
            }
            _ => CaptureItem::Other,
        };
        Ok((item, length))
    }

    /// Interface (4), time (8), captured length (4), original length (4), data, options.
    fn enhanced_packet<'a>(&self, body: &'a [u8], total: u32) -> Result<Record<'a>, ParseError> {
        let b = fixed_fields::<PACKET_HEAD_BYTES>(body, total)?;
        self.packet(self.order.u32([b[0], b[1], b[2], b[3]]), b, body)
    }

    /// Like the enhanced packet block, but with interface (2) and packets dropped since the last
    /// one (2). Returns these too, 0 if their number is unknown.
    fn obsolete_packet<'a>(&self, body: &'a [u8], total: u32) -> Result<(Record<'a>, u64), ParseError> {
        let b = fixed_fields::<PACKET_HEAD_BYTES>(body, total)?;
        let numbers = [[b[0], b[1]], [b[2], b[3]]];
        let [interface, dropped] = match self.order {
            ByteOrder::Little => numbers.map(u16::from_le_bytes),
            ByteOrder::Big => numbers.map(u16::from_be_bytes),
        };
        let dropped = if dropped == UNKNOWN_DROPS { 0 } else { u64::from(dropped) };
        Ok((self.packet(u32::from(interface), b, body)?, dropped))
    }

    /// Notes the packets that were dropped between a packet and the one before it: `stated` by its
    /// block, or by its ERF header. A program that converts ERF files may write both.
    #[inline]
    fn note_packet(&mut self, record: &Record<'_>, stated: u64) {
        let in_header = if record.link_type == LinkType::ERF { erf::lost_before(record.data) } else { 0 };
        let dropped = stated.max(in_header);
        if dropped > 0 {
            self.note_drops(record.interface, |own| own.before_packets = own.before_packets.saturating_add(dropped));
        }
    }

    #[cold]
    fn note_drops(&mut self, interface: u32, add: impl FnOnce(&mut StatedDrops)) {
        if self.drops.len() < MAX_DROPPING_INTERFACES || self.drops.contains_key(&interface) {
            add(Arc::make_mut(&mut self.drops).entry(interface).or_default());
        } else {
            self.earlier_drops.left_out += 1;
        }
    }

    /// Parses the fields that both blocks share; `head` is the start of `body`. Runs for every
    /// packet, so it reads fields of fixed size.
    fn packet<'a>(
        &self,
        interface: u32,
        head: &[u8; PACKET_HEAD_BYTES],
        body: &'a [u8],
    ) -> Result<Record<'a>, ParseError> {
        let b = head;
        let Interface { link_type, resolution, offset_s, .. } = *self.interface(interface)?;
        let high = self.order.u32([b[4], b[5], b[6], b[7]]);
        let low = self.order.u32([b[8], b[9], b[10], b[11]]);
        let captured = self.order.u32([b[12], b[13], b[14], b[15]]);
        let original = self.order.u32([b[16], b[17], b[18], b[19]]);
        let data = body
            .get(PACKET_HEAD_BYTES..)
            .and_then(|rest| rest.get(..captured as usize))
            .ok_or(invalid("Captured Packet Length", captured))?;
        let ticks = u64::from(high) << 32 | u64::from(low);
        let time_ns = Some(resolution.to_ns(ticks, offset_s));
        Ok(Record { time_ns, link_type, interface, data, original_bytes: original.max(captured) })
    }

    /// Original length (4), data truncated at the snap length of interface 0; no timestamp, no
    /// options.
    fn simple_packet<'a>(&self, body: &'a [u8], total: u32) -> Result<Record<'a>, ParseError> {
        let original_bytes = self.order.u32(*fixed_fields::<4>(body, total)?);
        let Interface { link_type, snaplen_bytes, .. } = *self.interface(0)?;
        let captured = if snaplen_bytes == 0 { original_bytes } else { original_bytes.min(snaplen_bytes) };
        let data = body
            .get(4..)
            .and_then(|rest| rest.get(..captured as usize))
            .ok_or(invalid("Original Packet Length", original_bytes))?;
        Ok(Record { time_ns: None, link_type, interface: 0, data, original_bytes })
    }

    /// Interface (4), time (8), options. A broken option leaves its counter and all later ones
    /// empty: an error would end the file, and packets matter more than statistics.
    fn statistics(&self, body: &[u8], total: u32) -> Result<Statistics, ParseError> {
        let order = self.order.nom();
        let (list, (interface, _time)) = leading((u32(order), u64(order)), body, total)?;
        let mut statistics = Statistics { interface, received: None, if_dropped: None, os_dropped: None };
        for (code, value) in options(list, order).map_while(Result::ok) {
            let counter = match code {
                ISB_IFRECV => &mut statistics.received,
                ISB_IFDROP => &mut statistics.if_dropped,
                ISB_OSDROP => &mut statistics.os_dropped,
                _ => continue,
            };
            *counter = parse_exact(u64(order), value);
        }
        Ok(statistics)
    }

    fn interface(&self, id: u32) -> Result<&Interface, ParseError> {
        self.interfaces.get(id as usize).ok_or(invalid("Interface ID", id))
    }
}

/// The drop count among the options of an enhanced packet block with this number of captured bytes; 0
/// without one. A broken option hides the ones after it, as in [`Section::statistics`].
#[inline]
fn drop_count(body: &[u8], captured_bytes: usize, order: ByteOrder) -> u64 {
    match body.get(PACKET_HEAD_BYTES + captured_bytes.next_multiple_of(4)..) {
        None | Some([]) => 0,
        Some(list) => {
            let mut found = options(list, order.nom()).map_while(Result::ok);
            let count = found.find(|(code, _)| *code == EPB_DROPCOUNT);
            count.and_then(|(_, value)| parse_exact(u64(order.nom()), value)).unwrap_or(0)
        }
    }
}

/// Byte-order magic (4), major version (2), minor version (2), section length (8), options.
fn section_header(body: &[u8], order: Endianness, total: u32) -> Result<(), ParseError> {
    let (_, (_magic, major, _minor, _length)) = leading((u32(order), u16(order), u16(order), u64(order)), body, total)?;
    if major == 1 { Ok(()) } else { Err(invalid("Major Version", u32::from(major))) }
}

/// Link type (2), reserved (2), snap length (4), options. A broken option is an error, because it
/// may hold the unit of the timestamps.
fn interface_description(body: &[u8], order: Endianness, total: u32) -> Result<Interface, ParseError> {
    let (list, (link_type, _reserved, snaplen_bytes)) = leading((u16(order), u16(order), u32(order)), body, total)?;
    let mut interface =
        Interface { link_type: LinkType(link_type), snaplen_bytes, resolution: Resolution::MICROSECONDS, offset_s: 0 };
    for option in options(list, order) {
        let (code, value) = option?;
        let bad_length = |field| invalid(field, value.len() as u32);
        match code {
            IF_TSRESOL => {
                let byte = parse_exact(u8, value).ok_or(bad_length("length of if_tsresol"))?;
                interface.resolution = Resolution::from_tsresol(byte)?;
            }
            IF_TSOFFSET => {
                interface.offset_s = parse_exact(i64(order), value).ok_or(bad_length("length of if_tsoffset"))?;
            }
            _ => {}
        }
    }
    Ok(interface)
}

/// Code and value of the options in `list`, up to the end-of-options marker or the end of the
/// block; at most one error, as the last item.
fn options(mut list: &[u8], order: Endianness) -> impl Iterator<Item = Result<(u16, &[u8]), ParseError>> {
    core::iter::from_fn(move || {
        if list.is_empty() {
            return None;
        }
        match option(list, order) {
            Ok((_, (0, _))) => None,
            Ok((rest, found)) => {
                list = rest;
                Some(Ok(found))
            }
            Err(_) => {
                let left = list.len() as u32;
                list = &[];
                Some(Err(invalid("Option Length", left)))
            }
        }
    })
}

/// Code (2), length (2), value, padding to four bytes.
fn option(input: &[u8], order: Endianness) -> IResult<&[u8], (u16, &[u8]), ()> {
    let (rest, (code, length)) = (u16(order), u16(order)).parse(input)?;
    let (rest, value) = nom::bytes::complete::take(length)(rest)?;
    let pad = length.next_multiple_of(4) - length;
    let (rest, _) = nom::bytes::complete::take(pad)(rest)?;
    Ok((rest, (code, value)))
}

/// The value of an option, if `parser` consumes all of its bytes.
fn parse_exact<'a, O>(parser: impl Parser<&'a [u8], Output = O, Error = ()>, value: &'a [u8]) -> Option<O> {
    nom::combinator::all_consuming(parser).parse(value).ok().map(|(_, output)| output)
}

fn byte_order(magic: [u8; 4]) -> Result<ByteOrder, ParseError> {
    if magic == BYTE_ORDER_MAGIC.to_le_bytes() {
        Ok(ByteOrder::Little)
    } else if magic == BYTE_ORDER_MAGIC.to_be_bytes() {
        Ok(ByteOrder::Big)
    } else {
        Err(invalid("Byte-Order Magic", u32::from_be_bytes(magic)))
    }
}

/// The fixed part of a body, or an error if the block is too short for its type.
fn fixed_fields<const N: usize>(body: &[u8], total: u32) -> Result<&[u8; N], ParseError> {
    body.first_chunk::<N>().ok_or(too_short(total))
}

/// Applies `parser` to the start of a body; returns the rest of the body and the output.
fn leading<'a, O>(
    mut parser: impl Parser<&'a [u8], Output = O, Error = ()>,
    body: &'a [u8],
    total: u32,
) -> Result<(&'a [u8], O), ParseError> {
    parser.parse(body).map_err(|_| too_short(total))
}

const fn too_short(total: u32) -> ParseError {
    invalid("Block Total Length", total)
}

const fn invalid(field: &'static str, value: u32) -> ParseError {
    ParseError::invalid(Layer::PcapngBlock, field, value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Writes blocks in one byte order.
    #[derive(Clone, Copy, Debug)]
    struct PcapngBuilder {
        big: bool,
    }

    const WRITERS: [PcapngBuilder; 2] = [PcapngBuilder { big: false }, PcapngBuilder { big: true }];

    impl PcapngBuilder {
        /// A number of `bytes` bytes in this byte order.
        fn number(self, value: u64, bytes: usize) -> Vec<u8> {
            if self.big { value.to_be_bytes()[8 - bytes..].to_vec() } else { value.to_le_bytes()[..bytes].to_vec() }
        }

        /// Concatenates numbers of the given widths in bytes.
        fn numbers<const N: usize>(self, numbers: [(u64, usize); N]) -> Vec<u8> {
            numbers.into_iter().flat_map(|(value, bytes)| self.number(value, bytes)).collect()
        }

        fn block(self, block_type: u64, body: &[u8]) -> Vec<u8> {
            let mut body = body.to_vec();
            body.resize(body.len().next_multiple_of(4), 0);
            let total = self.number(body.len() as u64 + 12, 4);
            [self.number(block_type, 4), total.clone(), body, total].concat()
        }

        fn option(self, code: u64, value: &[u8]) -> Vec<u8> {
            let mut bytes = self.numbers([(code, 2), (value.len() as u64, 2)]);
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0xEE);
            bytes
        }

        fn section(self) -> Vec<u8> {
            self.block(0x0A0D_0D0A, &self.numbers([(0x1A2B_3C4D, 4), (1, 2), (0, 2), (u64::MAX, 8)]))
        }

        fn interface(self, link_type: u64, snaplen: u64, options: &[u8]) -> Vec<u8> {
            self.block(1, &[&self.numbers([(link_type, 2), (0, 2), (snaplen, 4)]), options].concat())
        }

        fn enhanced(self, interface: u64, ticks: u64, original: u64, data: &[u8]) -> Vec<u8> {
            let head = [(interface, 4), (ticks >> 32, 4), (ticks, 4), (data.len() as u64, 4), (original, 4)];
            self.block(6, &[&self.numbers(head), data].concat())
        }
    }

    /// All items of `file`, which must end at a block boundary.
    fn items(file: &[u8]) -> Result<Vec<CaptureItem<'_>>, ParseError> {
        let (mut framing, mut at) = Framing::detect(file)?;
        let mut items = Vec::new();
        while at < file.len() {
            let (item, length) = framing.next(&file[at..])?;
            items.push(item);
            at += length;
        }
        Ok(items)
    }

    fn error(file: &[u8]) -> ErrorKind {
        items(file).unwrap_err().kind
    }

    fn times_ns(file: &[u8]) -> Vec<i64> {
        let items = items(file).unwrap();
        items
            .iter()
            .filter_map(|item| if let CaptureItem::Record(record) = item { record.time_ns } else { None })
            .collect()
    }

    #[test]
    fn enhanced_packets_of_two_interfaces() {
        for w in WRITERS {
            let file = [
                w.section(),
                w.interface(247, 0, &[]),
                w.interface(1, 64, &w.option(9, &[9])),
                w.enhanced(0, 1_700_000_000_000_007, 100, b"abcde"),
                w.enhanced(1, 1_700_000_000_000_000_007, 3, b"xyz"),
            ]
            .concat();
            let native = Record {
                time_ns: Some(1_700_000_000_000_007_000),
                link_type: LinkType::INFINIBAND,
                interface: 0,
                data: b"abcde",
                original_bytes: 100,
            };
            let ethernet = Record {
                time_ns: Some(1_700_000_000_000_000_007),
                link_type: LinkType::ETHERNET,
                interface: 1,
                data: b"xyz",
                original_bytes: 3,
            };
            let expected = [
                CaptureItem::Other,
                CaptureItem::Other,
                CaptureItem::Other,
                CaptureItem::Record(native),
                CaptureItem::Record(ethernet),
            ];
            assert_eq!(items(&file).unwrap(), expected, "{w:?}");
        }
    }

    /// The second section has the other byte order and a different interface 0.
    #[test]
    fn sections_start_anew() {
        for (w, v) in [(WRITERS[0], WRITERS[1]), (WRITERS[1], WRITERS[0])] {
            let first = [w.section(), w.interface(247, 0, &[]), w.enhanced(0, 1, 1, b"a")].concat();
            let second = [v.section(), v.interface(1, 0, &v.option(9, &[0])), v.enhanced(0, 2, 1, b"b")].concat();
            let file = [first.clone(), second].concat();
            assert_eq!(times_ns(&file), [1_000, 2_000_000_000]);
            let Some(CaptureItem::Record(last)) = items(&file).unwrap().pop() else { panic!("no record") };
            assert_eq!((last.link_type, last.data), (LinkType::ETHERNET, &b"b"[..]));
            let orphan = [first, v.section(), v.enhanced(0, 2, 1, b"b")].concat();
            assert_eq!(error(&orphan), ErrorKind::Invalid { field: "Interface ID", value: 0 });
        }
    }

    #[test]
    fn a_clone_keeps_its_interfaces() {
        let w = WRITERS[0];
        let (mut framing, _) = Framing::detect(&w.section()).unwrap();
        framing.next(&w.section()).unwrap();
        framing.next(&w.interface(247, 0, &[])).unwrap();
        let early = framing.clone();
        framing.next(&w.interface(1, 0, &[])).unwrap();
        let types = |framing: &Framing| framing.interfaces().iter().map(|i| i.link_type.0).collect::<Vec<_>>();
        assert_eq!((types(&early), types(&framing)), (std::vec![247], std::vec![247, 1]));
        framing.next(&w.section()).unwrap();
        assert_eq!((types(&early), types(&framing)), (std::vec![247], std::vec![]));
    }

    /// 1.5 s in every unit; 3 s if the unit is a second.
    #[test]
    fn every_if_tsresol() {
        for w in WRITERS {
            let time = |byte: u8, ticks: u64| {
                let interface = w.interface(1, 0, &w.option(9, &[byte]));
                times_ns(&[w.section(), interface, w.enhanced(0, ticks, 1, b"a")].concat())
            };
            for n in 1..=19_u8 {
                assert_eq!(time(n, 15 * 10_u64.pow(u32::from(n) - 1)), [1_500_000_000], "10^-{n}");
            }
            for n in 1..=63_u8 {
                assert_eq!(time(0x80 | n, 3 << (n - 1)), [1_500_000_000], "2^-{n}");
            }
            assert_eq!(time(0, 3), [3_000_000_000]);
            assert_eq!(time(0x80, 3), [3_000_000_000]);
        }
    }

    #[test]
    fn if_tsoffset_is_signed() {
        for w in WRITERS {
            let interface = |offset_s: i64| w.interface(1, 0, &w.option(14, &w.number(offset_s.cast_unsigned(), 8)));
            let packet = w.enhanced(0, 10_000_001, 1, b"a");
            assert_eq!(times_ns(&[w.section(), interface(-3), packet.clone()].concat()), [7_000_001_000]);
            assert_eq!(times_ns(&[w.section(), interface(-11), packet.clone()].concat()), [-999_999_000]);
            assert_eq!(
                times_ns(&[w.section(), interface(1_700_000_000), packet].concat()),
                [1_700_000_010_000_001_000]
            );
        }
    }

    /// Other options surround the relevant ones; options after the end marker are ignored.
    #[test]
    fn options_among_others() {
        for w in WRITERS {
            let list = [
                w.option(2, b"eth0x"),
                w.option(9, &[3]),
                w.option(11, b""),
                w.option(14, &w.number(5, 8)),
                w.option(0, b""),
                w.option(9, &[9]),
                std::vec![0xFF; 8],
            ];
            let file = [w.section(), w.interface(1, 0, &list.concat()), w.enhanced(0, 250, 1, b"a")].concat();
            assert_eq!(times_ns(&file), [5_250_000_000]);
        }
    }

    #[test]
    fn broken_options_of_an_interface() {
        for w in WRITERS {
            let file = |list: &[u8]| [w.section(), w.interface(1, 0, list)].concat();
            let invalid = |field, value| ErrorKind::Invalid { field, value };
            assert_eq!(error(&file(&w.option(9, &[20]))), invalid("if_tsresol", 20));
            assert_eq!(error(&file(&w.option(9, &[]))), invalid("length of if_tsresol", 0));
            assert_eq!(error(&file(&w.option(9, &[6, 6]))), invalid("length of if_tsresol", 2));
            assert_eq!(error(&file(&w.option(14, &[0; 4]))), invalid("length of if_tsoffset", 4));
            // The option claims 9 bytes, but the block has 4 left after its 4-byte header.
            let long = w.numbers([(2, 2), (9, 2), (0, 4)]);
            assert_eq!(error(&file(&long)), invalid("Option Length", 8));
        }
    }

    #[test]
    fn simple_packets() {
        for w in WRITERS {
            let simple = |original: u64, data: &[u8]| w.block(3, &[&w.number(original, 4), data].concat());
            let read = |snaplen: u64, original: u64, data: &'static [u8]| {
                let file = [w.section(), w.interface(247, snaplen, &[]), simple(original, data)].concat();
                match items(&file)?.pop() {
                    Some(CaptureItem::Record(record)) => {
                        assert_eq!((record.time_ns, record.link_type), (None, LinkType::INFINIBAND));
                        Ok((record.data.to_vec(), record.original_bytes))
                    }
                    _ => panic!("no record"),
                }
            };
            assert_eq!(read(0, 5, b"abcde"), Ok((b"abcde".to_vec(), 5)));
            assert_eq!(read(96, 5, b"abcde"), Ok((b"abcde".to_vec(), 5)));
            assert_eq!(read(3, 5, b"abc"), Ok((b"abc".to_vec(), 5)));
            let error: ParseError = read(0, 9, b"abcde").unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid { field: "Original Packet Length", value: 9 });
            let orphan = [w.section(), simple(1, b"a")].concat();
            assert_eq!(self::error(&orphan), ErrorKind::Invalid { field: "Interface ID", value: 0 });
        }
    }

    #[test]
    fn obsolete_packets() {
        for w in WRITERS {
            let head = w.numbers([(1, 2), (0xFFFF, 2), (1, 4), (5, 4), (2, 4), (60, 4)]);
            let packet = w.block(2, &[&head[..], b"hi"].concat());
            let file = [w.section(), w.interface(1, 0, &[]), w.interface(113, 0, &[]), packet].concat();
            let expected = Record {
                time_ns: Some((4_294_967_296 + 5) * 1_000),
                link_type: LinkType::SLL,
                interface: 1,
                data: b"hi",
                original_bytes: 60,
            };
            assert_eq!(items(&file).unwrap().pop(), Some(CaptureItem::Record(expected)));
        }
    }

    #[test]
    fn statistics() {
        for w in WRITERS {
            let counters = |list: &[u8]| {
                let block = w.block(5, &[&w.numbers([(7, 4), (0, 8)]), list].concat());
                let Some(CaptureItem::Statistics(statistics)) = items(&[w.section(), block].concat()).unwrap().pop()
                else {
                    panic!("no statistics")
                };
                assert_eq!(statistics.interface, 7);
                (statistics.received, statistics.if_dropped, statistics.os_dropped)
            };
            let counter = |code, value| w.option(code, &w.number(value, 8));
            let full = [counter(2, 99), counter(4, 1 << 40), counter(5, 3), counter(6, 98), counter(7, 2)].concat();
            assert_eq!(counters(&full), (Some(1 << 40), Some(3), Some(2)));
            assert_eq!(counters(&[]), (None, None, None));
            assert_eq!(counters(&[counter(5, 0), w.option(0, b"")].concat()), (None, Some(0), None));
            // A four-byte counter is ignored; options after a broken one cannot be reached.
            assert_eq!(counters(&[w.option(4, &[1; 4]), counter(7, 2)].concat()), (None, None, Some(2)));
            let broken = [counter(4, 6), w.numbers([(5, 2), (200, 2)]), counter(7, 2)].concat();
            assert_eq!(counters(&broken), (Some(6), None, None));
        }
    }

    /// The drops of a file of two interfaces and these blocks.
    fn drops(w: PcapngBuilder, blocks: &[Vec<u8>]) -> InterfaceDrops {
        let start = [w.section(), w.interface(1, 0, &[]), w.interface(197, 0, &[])].concat();
        let file = [start, blocks.concat()].concat();
        let (mut framing, _) = Framing::detect(&file).unwrap();
        assert_eq!(framing.walk(&file, |_| {}), (file.len(), None));
        framing.interface_drops()
    }

    /// The specification: `epb_dropcount` (option 4, 64 bits) and the drops count of the obsolete block
    /// (16 bits, 0xFFFF for "not available") are the packets lost between a packet and the one before it;
    /// `isb_ifdrop` (5) and `isb_osdrop` (7) those since the start of the capture.
    #[test]
    fn drops_of_packet_blocks_and_of_statistics() {
        for w in WRITERS {
            let enhanced = |interface: u64, options: &[Vec<u8>]| {
                // Three captured bytes, and one of padding.
                let head = w.numbers([(interface, 4), (0, 8), (3, 4), (3, 4)]);
                w.block(6, &[&head[..], b"abc\0", &options.concat()].concat())
            };
            let obsolete =
                |drops: u64| w.block(2, &[&w.numbers([(0, 2), (drops, 2), (0, 8), (1, 4), (1, 4)])[..], b"a"].concat());
            let count = |count: u64| w.option(4, &w.number(count, 8));
            let statistics = |interface: u64, if_dropped: u64, os_dropped: u64| {
                let counters =
                    [(5, if_dropped), (7, os_dropped)].map(|(code, value)| w.option(code, &w.number(value, 8)));
                w.block(5, &[w.numbers([(interface, 4), (0, 8)]), counters.concat()].concat())
            };
            let packets = |blocks: &[Vec<u8>]| drops(w, blocks).packets;
            let end = w.option(0, b"");
            let flags = w.option(2, &[0; 4]);
            assert_eq!(packets(&[enhanced(0, &[])]), 0);
            assert_eq!(packets(&[enhanced(0, &[count(5)]), enhanced(0, &[flags, count(7), end.clone()])]), 12);
            // After the end marker, and with four bytes instead of eight.
            assert_eq!(packets(&[enhanced(0, &[end, count(9)]), enhanced(0, &[w.option(4, &[1; 4])])]), 0);
            assert_eq!(packets(&[obsolete(3), obsolete(0xFFFF), obsolete(0)]), 3);
            assert_eq!(packets(&[enhanced(0, &[count(u64::MAX)]), obsolete(3)]), u64::MAX);
            // Statistics state the same drops.
            assert_eq!(packets(&[enhanced(0, &[count(5)]), statistics(0, 3, 1), statistics(0, 3, 4)]), 7);
            assert_eq!(packets(&[enhanced(0, &[count(5)]), statistics(0, 1, 1)]), 5);
            // Of another interface, and of the same number in another section.
            assert_eq!(packets(&[enhanced(0, &[count(5)]), statistics(1, 3, 4)]), 12);
            let next = [w.section(), w.interface(1, 0, &[])].concat();
            assert_eq!(packets(&[statistics(0, 100, 0), next.clone(), statistics(0, 60, 0)]), 160);
            assert_eq!(packets(&[obsolete(100), next, enhanced(0, &[count(60)])]), 160);
        }
    }

    /// The loss counter of an ERF header is in the packet; a converter may write both.
    #[test]
    fn drops_of_erf_headers() {
        for w in WRITERS {
            let mut header = [0; 16];
            (header[8], header[13]) = (21, 6);
            let packet = |options: &[u8]| {
                w.block(6, &[&w.numbers([(1, 4), (0, 8), (16, 4), (16, 4)])[..], &header, options].concat())
            };
            assert_eq!(drops(w, &[packet(&[]), packet(&[])]).packets, 12);
            assert_eq!(drops(w, &[packet(&w.option(4, &w.number(6, 8)))]).packets, 6);
        }
    }

    #[test]
    fn drops_of_too_many_interfaces_are_left_out() {
        let w = WRITERS[0];
        let statistics = |interface: usize| {
            w.block(5, &[w.numbers([(interface as u64, 4), (0, 8)]), w.option(5, &w.number(2, 8))].concat())
        };
        for interfaces in [MAX_DROPPING_INTERFACES, MAX_DROPPING_INTERFACES + 1] {
            // Those of the first interface are counted again.
            let blocks: Vec<Vec<u8>> = (0..interfaces).chain([0]).map(statistics).collect();
            let left_out = (interfaces - MAX_DROPPING_INTERFACES) as u64;
            let packets = 2 * MAX_DROPPING_INTERFACES as u64;
            assert_eq!(drops(w, &blocks), InterfaceDrops { packets, left_out });
        }
    }

    #[test]
    fn unknown_blocks_are_skipped() {
        for w in WRITERS {
            let mut file = w.section();
            for block_type in [0, 4, 10, 0x0BAD, 0x4000_0BAD, 0x8000_0001] {
                file.extend(w.block(block_type, &[0xA5; 20]));
            }
            file.extend(w.block(4, &[]));
            assert_eq!(items(&file).unwrap(), [CaptureItem::Other; 8]);
        }
    }

    #[test]
    fn broken_lengths() {
        for w in WRITERS {
            let invalid = |field, value| ErrorKind::Invalid { field, value };
            for total in [0, 4, 8, 11, 13, 14, 15, (16 << 20) + 4, 0xFFFF_FFFC] {
                let block = [w.numbers([(4, 4), (total, 4)]), std::vec![0; 40]].concat();
                assert_eq!(error(&[w.section(), block].concat()), invalid("Block Total Length", total));
            }
            let mut block = w.block(4, &[0; 8]);
            let end = block.len() - 4;
            block[end..].copy_from_slice(&w.number(24, 4));
            assert_eq!(error(&[w.section(), block].concat()), invalid("trailing Block Total Length", 24));
            // Complete blocks that are too short for the fields of their type.
            for (block_type, body) in [(6, 16), (2, 16), (3, 0), (5, 8), (1, 4), (0x0A0D_0D0A, 12)] {
                let body = [w.number(0x1A2B_3C4D, 4), std::vec![0; 12]].concat()[..body].to_vec();
                let total = body.len() as u64 + 12;
                let file = [w.section(), w.block(block_type, &body)].concat();
                assert_eq!(error(&file), invalid("Block Total Length", total), "type {block_type}");
            }
        }
    }

    #[test]
    fn broken_packets() {
        for w in WRITERS {
            let file = |block: Vec<u8>| [w.section(), w.interface(1, 0, &[]), block].concat();
            let invalid = |field, value| ErrorKind::Invalid { field, value };
            assert_eq!(error(&file(w.enhanced(1, 0, 1, b"a"))), invalid("Interface ID", 1));
            let head = w.numbers([(0, 4), (0, 8), (9, 4), (9, 4), (0, 8)]);
            assert_eq!(error(&file(w.block(6, &head))), invalid("Captured Packet Length", 9));
            let head = w.numbers([(0, 4), (0, 8), (0xFFFF_FFFF, 4), (9, 4), (0, 8)]);
            assert_eq!(error(&file(w.block(6, &head))), invalid("Captured Packet Length", 0xFFFF_FFFF));
        }
    }

    #[test]
    fn original_length_below_the_captured_one() {
        let w = WRITERS[0];
        let file = [w.section(), w.interface(1, 0, &[]), w.enhanced(0, 0, 2, b"abc")].concat();
        let Some(CaptureItem::Record(record)) = items(&file).unwrap().pop() else { panic!("no record") };
        assert_eq!((record.original_bytes, record.data), (3, &b"abc"[..]));
    }

    #[test]
    fn broken_sections() {
        for w in WRITERS {
            let mut file = w.section();
            file[8] = 0;
            let magic = if w.big { 0x002B_3C4D } else { 0x003C_2B1A };
            assert_eq!(error(&file), ErrorKind::Invalid { field: "Byte-Order Magic", value: magic });
            let version_2 = w.block(0x0A0D_0D0A, &w.numbers([(0x1A2B_3C4D, 4), (2, 2), (0, 2), (0, 8)]));
            assert_eq!(error(&version_2), ErrorKind::Invalid { field: "Major Version", value: 2 });
        }
    }

    /// Until the length is known the parser needs 12 bytes, then the whole block; an error changes
    /// no state.
    #[test]
    fn truncated_at_every_byte() {
        for w in WRITERS {
            let statistics = w.block(5, &[w.numbers([(0, 4), (0, 8)]), w.option(5, &w.number(1, 8))].concat());
            let blocks = [
                w.section(),
                w.interface(1, 0, &w.option(9, &[9])),
                w.enhanced(0, 1, 6, b"abcdef"),
                w.block(3, &[w.number(2, 4), b"ab".to_vec()].concat()),
                w.block(2, &[w.numbers([(0, 4), (0, 8), (1, 4), (1, 4)]), b"a".to_vec()].concat()),
                statistics,
                w.block(0x0BAD, b"unknown"),
                w.section(),
            ];
            let (mut framing, 0) = Framing::detect(&blocks[0][..12]).unwrap() else { panic!("no file header") };
            for block in &blocks {
                for cut in 0..block.len() {
                    let before = framing.interfaces().len();
                    let needed = if cut < 12 { 12 } else { block.len() };
                    let expected = ParseError::truncated(Layer::PcapngBlock, needed, cut);
                    assert_eq!(framing.next(&block[..cut]), Err(expected));
                    assert_eq!(framing.interfaces().len(), before);
                }
                assert_eq!(framing.next(block).unwrap().1, block.len());
            }
        }
    }
}
