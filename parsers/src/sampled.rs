//! Frames that a switch samples and sends with their sampling rate: sFlow version 5 and psample.
//!
//! In: the payload of a UDP datagram, or a netlink record. Out: the sampled frames, each with its
//! [`SampleHeader`] (sampling rate and counters). One datagram holds several samples. Invariant: a
//! frame lies within the given bytes, and the walk over the samples ends with the bytes.
//!
//! sFlow: "sFlow Version 5" (sflow.org, July 2004), section 5, and the structures of its appendix.
//! All fields are 32 bits in network byte order (XDR). psample: `include/uapi/linux/psample.h` of
//! Linux and Wireshark's `packet-netlink-psample.c`.

use crate::error::take;
use crate::field::Endpoint;
use crate::frame::LinkType;
use crate::tunnel::{MirrorHeader, MirrorSession, TunnelKind};
use crate::{Layer, ParseError};
use core::fmt;

/// UDP port of sFlow collectors (IANA).
pub const SFLOW_PORT: u16 = 6343;

/// Version of sFlow that is read.
const VERSION: u32 = 5;
/// Formats of samples: enterprise 0 in the upper 20 bits.
const FLOW: u32 = 1;
const COUNTERS: u32 = 2;
const EXPANDED_FLOW: u32 = 3;
const EXPANDED_COUNTERS: u32 = 4;
/// Bits of `source_id` in a sample that is not expanded that are the index of the source; the others are
/// its class.
const COMPACT_INDEX_BITS: u32 = 24;
/// Format of a flow record: the first bytes of the frame.
const RAW_HEADER: u32 = 1;
/// Values of `header_protocol`. The standard has none for InfiniBand.
const ETHERNET: u32 = 1;
const IPV4: u32 = 11;
const IPV6: u32 = 12;

/// Header of a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampleHeader {
    /// The source that numbers its samples: the agent, its sub-agent and its interface, or the group
    /// of psample.
    pub session: MirrorSession,
    /// Number of the sample at its source.
    pub sequence: u32,
    /// The source takes one of this many packets; not always a whole number, because psample may state a
    /// probability.
    pub one_in: f64,
    /// Packets that the source could have sampled so far; psample does not state them.
    pub pool: Option<u32>,
    /// Samples that the agent dropped so far, for lack of resources.
    pub drops: u32,
    /// Milliseconds since the agent started, modulo 2^32; psample does not state them.
    pub uptime_ms: Option<u32>,
}

impl SampleHeader {
    /// The header as that of a mirror.
    #[must_use]
    pub const fn mirror(&self) -> MirrorHeader {
        let (session, sequence) = (self.session, Some(self.sequence));
        MirrorHeader { session, sequence, vlan: None, is_egress: None, is_truncated: false }
    }
}

/// A sampled frame.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampledFrame<'a> {
    /// Link type of `data`.
    pub link_type: LinkType,
    /// The first bytes of the frame.
    pub data: &'a [u8],
    /// Length of the frame, without the bytes that the switch removed, such as the checksum.
    pub original_bytes: u32,
    /// Header of the sample.
    pub header: SampleHeader,
}

/// A sample of an sFlow datagram.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SflowSample<'a> {
    /// A frame.
    Frame(SampledFrame<'a>),
    /// Counters of a port.
    Counters,
    /// A sample without a frame that can be read.
    Unread(UnreadSample),
}

/// Why a sample of sFlow has no frame that can be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnreadSample {
    /// The format is unknown: enterprise in the upper 20 bits, format in the lower 12.
    Format(u32),
    /// A flow sample without the bytes of its frame.
    NoFrame,
    /// The frame starts with a header of this protocol (`header_protocol`).
    HeaderProtocol(u32),
}

impl UnreadSample {
    /// Bits of a sample's format that are the format of its enterprise; the others are the enterprise.
    const FORMAT_BITS: u32 = 12;
}

impl fmt::Display for UnreadSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(format) => {
                let (enterprise, format) = (format >> Self::FORMAT_BITS, format & ((1 << Self::FORMAT_BITS) - 1));
                write!(f, "unknown sample format {enterprise}:{format}")
            }
            Self::NoFrame => f.write_str("no frame in a flow sample"),
            Self::HeaderProtocol(protocol) => write!(f, "unknown header protocol {protocol}"),
        }
    }
}

/// The samples of an sFlow datagram.
#[derive(Clone, Debug)]
pub struct SflowDatagram<'a> {
    agent: Endpoint,
    sub_agent: u32,
    sequence: u32,
    uptime_ms: u32,
    left: Xdr<'a>,
    samples: u32,
}

/// XDR fields, and how many bytes of the datagram come before them.
#[derive(Clone, Copy, Debug)]
struct Xdr<'a> {
    data: &'a [u8],
    at: usize,
}

impl Xdr<'_> {
    fn number(&mut self) -> Result<u32, ParseError> {
        let bytes = take::<4>(self.data, Layer::Sflow).map_err(|error| error.add_offset(self.at))?;
        let number = u32::from_be_bytes(*bytes);
        self.skip(4);
        Ok(number)
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u32; N], ParseError> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Ok(numbers)
    }

    fn skip(&mut self, bytes: usize) {
        self.data = self.data.get(bytes..).unwrap_or_default();
        self.at = self.at.saturating_add(bytes);
    }

    /// The next `bytes` bytes, or as many as were captured, and the padding to a multiple of four.
    fn opaque(&mut self, bytes: u32) -> Self {
        let bytes = bytes as usize;
        let own = Self { data: self.data.get(..bytes).unwrap_or(self.data), at: self.at };
        self.skip(bytes.checked_next_multiple_of(4).unwrap_or(bytes));
        own
    }
}

impl<'a> SflowDatagram<'a> {
    /// Reads the header of a datagram.
    ///
    /// # Errors
    /// The header is truncated, or is not that of version 5.
    pub fn parse(data: &'a [u8]) -> Result<Self, ParseError> {
        let mut left = Xdr { data, at: 0 };
        let invalid = |field, value: u32| Err(ParseError::invalid(Layer::Sflow, field, u64::from(value)));
        let version = left.number()?;
        if version != VERSION {
            return invalid("version", version);
        }
        let agent = match left.number()? {
            1 => Endpoint::from_ipv4(left.number()?.to_be_bytes()),
            2 => {
                let words = left.numbers::<4>()?.map(u32::to_be_bytes);
                let mut bytes = [0; 16];
                bytes.chunks_exact_mut(4).zip(words).for_each(|(into, word)| into.copy_from_slice(&word));
                Endpoint::from_gid(bytes)
            }
            other => return invalid("address type", other),
        };
        let [sub_agent, sequence, uptime_ms, samples] = left.numbers()?;
        Ok(Self { agent, sub_agent, sequence, uptime_ms, left, samples })
    }

    /// The sender: each sub-agent numbers its datagrams.
    #[must_use]
    pub const fn session(&self) -> MirrorSession {
        let session = self.sub_agent as u64;
        MirrorSession { kind: TunnelKind::Sflow, source: self.agent, session, engine: 0 }
    }

    /// Number of the datagram at its sender, modulo 2^32.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Milliseconds since the agent started, modulo 2^32.
    #[must_use]
    pub const fn uptime_ms(&self) -> u32 {
        self.uptime_ms
    }

    fn sample(&mut self) -> Result<SflowSample<'a>, ParseError> {
        let [format, bytes] = self.left.numbers()?;
        let is_truncated = self.left.data.len() < bytes as usize;
        let mut own = self.left.opaque(bytes);
        match format {
            FLOW | EXPANDED_FLOW => {
                let found = self.flow(&mut own, format == EXPANDED_FLOW)?;
                match found {
                    // The rest of the sample may hold the frame.
                    None if is_truncated => {
                        Err(ParseError::truncated(Layer::Sflow, self.left.at, own.at.saturating_add(own.data.len())))
                    }
                    None => Ok(SflowSample::Unread(UnreadSample::NoFrame)),
                    Some(found) => Ok(found),
                }
            }
            COUNTERS | EXPANDED_COUNTERS => Ok(SflowSample::Counters),
            other => Ok(SflowSample::Unread(UnreadSample::Format(other))),
        }
    }

    /// The frame of a flow sample; `None` if it holds none.
    fn flow(&self, own: &mut Xdr<'a>, is_expanded: bool) -> Result<Option<SflowSample<'a>>, ParseError> {
        let sequence = own.number()?;
        let [class, index] = if is_expanded {
            own.numbers()?
        } else {
            let source = own.number()?;
            [source >> COMPACT_INDEX_BITS, source & ((1 << COMPACT_INDEX_BITS) - 1)]
        };
        let [one_in, pool, drops] = own.numbers()?;
        own.skip(if is_expanded { 16 } else { 8 });
        let records = own.number()?;
        let session = MirrorSession {
            kind: TunnelKind::Sflow,
            source: self.agent,
            session: MirrorSession::sflow_source(class, index),
            engine: self.sub_agent,
        };
        let (one_in, uptime_ms) = (f64::from(one_in), Some(self.uptime_ms));
        let header = SampleHeader { session, sequence, one_in, pool: Some(pool), drops, uptime_ms };
        for _ in 0..records {
            if own.data.is_empty() {
                break;
            }
            let [format, bytes] = own.numbers()?;
            let mut record = own.opaque(bytes);
            if format != RAW_HEADER {
                continue;
            }
            let [protocol, frame_bytes, stripped_bytes, header_bytes] = record.numbers()?;
            let data = record.opaque(header_bytes).data;
            let original_bytes = frame_bytes.saturating_sub(stripped_bytes).max(data.len() as u32);
            let link_type = match protocol {
                ETHERNET => LinkType::ETHERNET,
                IPV4 | IPV6 => LinkType::RAW,
                other => return Ok(Some(SflowSample::Unread(UnreadSample::HeaderProtocol(other)))),
            };
            return Ok(Some(SflowSample::Frame(SampledFrame { link_type, data, original_bytes, header })));
        }
        Ok(None)
    }
}

impl<'a> Iterator for SflowDatagram<'a> {
    type Item = Result<SflowSample<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.samples = self.samples.checked_sub(1)?;
        let sample = self.sample();
        // Nothing after an error can be found, because samples have no marker.
        if sample.is_err() {
            self.samples = 0;
        }
        Some(sample)
    }
}

/// Bytes of the Linux cooked header before a netlink message, and of the netlink and generic
/// netlink headers.
const COOKED_BYTES: usize = 16;
const NETLINK_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
/// `NETLINK_GENERIC`, and the first message type of a generic family.
const NETLINK_GENERIC: u16 = 16;
const MIN_FAMILY: u16 = 16;
/// `PSAMPLE_CMD_SAMPLE`.
const CMD_SAMPLE: u8 = 0;
/// `PSAMPLE_ATTR_*`.
const ORIGINAL_SIZE: u16 = 2;
const GROUP: u16 = 3;
const SEQUENCE: u16 = 4;
const RATE: u16 = 5;
const DATA: u16 = 6;
const PROBABILITY: u16 = 16;
/// Flags in the type of an attribute.
const ATTRIBUTE_FLAGS: u16 = 0xC000;

/// The sampled frame of a netlink record (link type 253), as `tcpdump -i nlmon0` writes it. `None`
/// for other messages: a message of psample is known by its attributes, because the number of its
/// family differs between machines. Netlink has the byte order of the machine.
#[must_use]
pub fn psample(data: &[u8]) -> Option<SampledFrame<'_>> {
    let family = u16::from_be_bytes(data.get(COOKED_BYTES - 2..COOKED_BYTES)?.try_into().ok()?);
    if family != NETLINK_GENERIC {
        return None;
    }
    let message = data.get(COOKED_BYTES..)?;
    [false, true].into_iter().find_map(|is_big| psample_message(message, is_big))
}

fn psample_message(message: &[u8], is_big: bool) -> Option<SampledFrame<'_>> {
    let short = |bytes: &[u8]| {
        let bytes: [u8; 2] = bytes.try_into().ok()?;
        Some(if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let long = |bytes: &[u8]| {
        let bytes: [u8; 4] = bytes.try_into().ok()?;
        Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let length = long(message.get(..4)?)? as usize;
    let kind = short(message.get(4..6)?)?;
    let [command, version] = *message.get(NETLINK_BYTES..NETLINK_BYTES + 2)? else { return None };
    if length < NETLINK_BYTES + GENERIC_BYTES || kind < MIN_FAMILY || command != CMD_SAMPLE || version != 1 {
        return None;
    }
    let mut left = message.get(NETLINK_BYTES + GENERIC_BYTES..length.min(message.len()))?;
    let (mut numbers, mut frame, mut is_probability) = ([None; 4], None, false);
    while let Some((header, _)) = left.split_first_chunk::<4>() {
        let (bytes, kind) = (usize::from(short(&header[..2])?), short(&header[2..])? & !ATTRIBUTE_FLAGS);
        // The last attribute of a truncated record is truncated as well.
        let value = left.get(4..bytes.min(left.len()))?;
        match kind {
            ORIGINAL_SIZE | GROUP | SEQUENCE | RATE => numbers[usize::from(kind - ORIGINAL_SIZE)] = long(value),
            DATA => frame = Some(value),
            PROBABILITY => is_probability = true,
            _ => {}
        }
        left = left.get(bytes.checked_next_multiple_of(4)?..).unwrap_or_default();
    }
    let ([Some(original_bytes), Some(group), Some(sequence), Some(rate)], Some(data)) = (numbers, frame) else {
        return None;
    };
    // With this flag the rate is a probability, "scaled 0 - U32_MAX" (psample.h). A sample shows that it is
    // not 0.
    let one_in = if is_probability { f64::from(u32::MAX) / f64::from(rate.max(1)) } else { f64::from(rate) };
    let source = Endpoint::from_ipv4([0; 4]);
    let session = MirrorSession { kind: TunnelKind::Psample, source, session: group.into(), engine: 0 };
    let header = SampleHeader { session, sequence, one_in, pool: None, drops: 0, uptime_ms: None };
    let original_bytes = original_bytes.max(data.len() as u32);
    (!data.is_empty()).then_some(SampledFrame { link_type: LinkType::ETHERNET, data, original_bytes, header })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// A datagram with counters, a flow sample and an expanded one, of 6 and 60 bytes.
    fn datagram() -> Vec<u8> {
        let raw = |bytes: u32, byte: u8| {
            let padded = bytes.next_multiple_of(4);
            let mut record = words(&[1, 16 + padded, 1, bytes + 1000, 4, bytes]);
            record.extend((0..padded).map(|at| if at < bytes { byte } else { 0 }));
            record
        };
        let other = words(&[1001, 16, 1, 2, 3, 4]);
        let mut data = words(&[5, 1, 0x0A00_0001, 0, 77, 1234, 3]);
        data.extend(words(&[2, 12, 5, 6, 0]));
        let flow = [words(&[42, 7, 1000, 42_000, 3, 1, 2, 2]), other, raw(6, 0xAA)].concat();
        data.extend(words(&[1, flow.len() as u32]));
        data.extend(flow);
        let flow = [words(&[43, 0, 9, 512, 43_000, 4, 0, 1, 0, 2, 1]), raw(60, 0xBB)].concat();
        data.extend(words(&[3, flow.len() as u32]));
        data.extend(flow);
        data
    }

    #[test]
    fn samples_of_a_datagram() {
        let data = datagram();
        let samples: Vec<SflowSample<'_>> = SflowDatagram::parse(&data).unwrap().map(Result::unwrap).collect();
        let header = |session, sequence, one_in: u32, pool, drops| SampleHeader {
            session: MirrorSession {
                kind: TunnelKind::Sflow,
                source: Endpoint::from_ipv4([10, 0, 0, 1]),
                session,
                engine: 0,
            },
            sequence,
            one_in: f64::from(one_in),
            pool: Some(pool),
            drops,
            uptime_ms: Some(1234),
        };
        let frame = |data, original_bytes, header| {
            SflowSample::Frame(SampledFrame { link_type: LinkType::ETHERNET, data, original_bytes, header })
        };
        let expected = [
            SflowSample::Counters,
            frame(&[0xAA; 6], 1002, header(7, 42, 1000, 42_000, 3)),
            frame(&[0xBB; 60], 1056, header(9, 43, 512, 43_000, 4)),
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn a_truncated_datagram_ends_with_an_error_or_the_bytes_of_a_frame() {
        let data = datagram();
        for there in 0..data.len() {
            let Ok(samples) = SflowDatagram::parse(&data[..there]) else { continue };
            let samples: Vec<_> = samples.collect();
            assert!(samples.len() <= 3);
            for sample in samples.iter().flatten() {
                assert!(matches!(sample, SflowSample::Counters | SflowSample::Frame(_)), "{there}: {sample:?}");
            }
        }
    }

    #[test]
    fn other_versions_are_refused() {
        assert!(SflowDatagram::parse(&words(&[4, 1, 1, 0, 0, 0, 0])).is_err());
        assert!(SflowDatagram::parse(&words(&[5, 3, 1, 0, 0, 0, 0])).is_err());
    }

    /// A sample of psample that states this rate, or the probability if a flag says so.
    fn message(is_big: bool, rate: u32, is_probability: bool) -> Vec<u8> {
        let short = |number: u16| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let long = |number: u32| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let mut attributes = Vec::new();
        for (kind, number) in [(2, 1500), (3, 4), (4, 99), (5, rate)] {
            attributes.extend([short(8), short(kind)].concat());
            attributes.extend(long(number));
        }
        if is_probability {
            attributes.extend([short(4), short(16)].concat());
        }
        attributes.extend([short(4 + 6), short(6)].concat());
        attributes.extend([0xCC; 6]);
        attributes.extend([0, 0]);
        let mut data = Vec::from([0, 0, 3, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
        data.extend(long(20 + attributes.len() as u32));
        data.extend([short(0x1F), short(0)].concat());
        data.extend([long(0), long(0)].concat());
        data.extend([0, 1, 0, 0]);
        data.extend(attributes);
        data
    }

    #[test]
    fn a_message_of_psample_in_both_byte_orders() {
        for is_big in [false, true] {
            let data = message(is_big, 256, false);
            let found = psample(&data).unwrap();
            assert_eq!((found.data, found.original_bytes), (&[0xCC; 6][..], 1500));
            assert_eq!((found.header.session.session, found.header.sequence), (4, 99));
            assert_eq!(Some(found.header.one_in), Some(256.0));
            let mut other = data;
            other[15] = 0;
            assert_eq!(psample(&other), None);
        }
    }

    /// `PSAMPLE_ATTR_SAMPLE_PROBABILITY`: the kernel scales a probability to 0 to 2^32 - 1, and Open vSwitch has
    /// 16 bits, which it repeats.
    #[test]
    fn a_probability_of_psample_is_a_rate_that_need_not_be_whole() {
        let one_in = |rate, is_probability| psample(&message(false, rate, is_probability)).unwrap().header.one_in;
        for real in [2.0, 4.0, 10.0, 3.0, 1.5, 1000.0] {
            let scaled = (f64::from(u32::MAX) / real).round() as u32;
            let of_kernel = one_in(scaled, true);
            assert!((of_kernel / real - 1.0).abs() < 1e-6, "{real}: {of_kernel}");
            let short = (f64::from(u16::MAX) / real).round() as u32;
            let of_switch = one_in(short << 16 | short, true);
            let expected = f64::from(u16::MAX) / f64::from(short);
            assert!((of_switch / expected - 1.0).abs() < 1e-9 && (of_switch / real - 1.0).abs() < 0.01, "{of_switch}");
        }
        assert_eq!(
            [one_in(u32::MAX, true), one_in(0, true), one_in(7, false)].map(Some),
            [1.0, f64::from(u32::MAX), 7.0].map(Some)
        );
    }

    #[test]
    fn sources_and_sub_agents_differ_in_all_their_bits() {
        let session = |sub_agent: u32, source: &[u32]| {
            let is_expanded = source.len() == 2;
            let ports: &[u32] = if is_expanded { &[0, 1, 0, 2] } else { &[1, 2] };
            let flow = [&[42][..], source, &[1000, 42_000, 3], ports, &[1, 1, 20, 1, 64, 4, 4, 0]].concat();
            let head = [5, 1, 0x0A00_0001, sub_agent, 77, 1234, 1, if is_expanded { 3 } else { 1 }];
            let data = words(&[&head[..], &[4 * flow.len() as u32], &flow].concat());
            match SflowDatagram::parse(&data).unwrap().next() {
                Some(Ok(SflowSample::Frame(frame))) => frame.header.session,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(session(0, &[7]), session(0, &[0, 7]));
        assert_eq!(session(0, &[2 << 24 | 7]), session(0, &[2, 7]));
        let other = [
            session(0, &[7]),
            session(256, &[7]),
            session(1 << 24, &[7]),
            session(0, &[0, 7 | 1 << 24]),
            session(0, &[256, 7]),
            session(0, &[1, 7]),
        ];
        for (place, one) in other.iter().enumerate() {
            assert!(other[..place].iter().all(|before| before != one), "{one:?}");
            assert_eq!(one.is_interface(), place < 4, "{one:?}");
        }
        assert_eq!(other[1].to_string(), "sFlow from 10.0.0.1, interface 7, sub-agent 256");
        assert_eq!(other[5].to_string(), "sFlow from 10.0.0.1, source 1:7");
    }

    #[test]
    fn samples_without_a_frame_name_their_reason() {
        let of = |words_of_sample: &[u32]| {
            let data = words(&[&[5, 1, 0x0A00_0001, 0, 77, 1234, 1], words_of_sample].concat());
            match SflowDatagram::parse(&data).unwrap().next() {
                Some(Ok(SflowSample::Unread(unread))) => unread.to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(&[4413 << 12 | 1, 4, 0]), "unknown sample format 4413:1");
        // Equal to a flow sample in the lower 16 bits.
        assert_eq!(of(&[16 << 12 | 1, 4, 0]), "unknown sample format 16:1");
        assert_eq!(of(&[5, 4, 0]), "unknown sample format 0:5");
        let flow = [42, 7, 1000, 42_000, 3, 1, 2];
        assert_eq!(of(&[&[1, 32][..], &flow, &[0]].concat()), "no frame in a flow sample");
        let frame = [1, 1, 20, 7, 64, 4, 4, 0];
        assert_eq!(of(&[&[1, 60][..], &flow, &frame].concat()), "unknown header protocol 7");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            changes in proptest::collection::vec((0usize..400, any::<u8>()), 0..6), there in 0usize..400, is_big: bool,
        ) {
            for mut data in [datagram(), message(is_big, 256, true)] {
                for (at, value) in &changes {
                    if let Some(byte) = data.get_mut(*at) {
                        *byte = *value;
                    }
                }
                data.truncate(there);
                let _ = psample(&data);
                if let Ok(samples) = SflowDatagram::parse(&data) {
                    prop_assert!(samples.count() <= data.len());
                }
            }
        }
    }
}
