//! Checksums of a packet: the ICRC (CRC-32, with the fields that routers change replaced by ones)
//! and the VCRC of native links (CRC-16).

pub use crate::ib::vcrc::vcrc;
use crate::ib::{Bth, Grh, ICRC_BYTES, Lrh, VCRC_BYTES};
use crate::location::{Encapsulation, Location};
use alloc::boxed::Box;
use crc32fast::Hasher;
use ibscope_crc::{BLOCK_BYTES, Polynomial};
use once_cell::race::OnceBox;

/// Result of comparing a checksum with the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CrcVerdict {
    /// The checksum matches.
    Ok,
    /// The checksum does not match.
    Bad,
    /// The capture ends before the checksum.
    Truncated,
    /// The packet has no such checksum.
    None,
}

impl CrcVerdict {
    /// Name used in outputs: `ok`, `bad`, `truncated` or `none`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Bad => "bad",
            Self::Truncated => "truncated",
            Self::None => "none",
        }
    }
}

/// CRC-32 of eight bytes 0xFF, which replace the LRH that RoCE packets do not have.
const CRC_OF_ABSENT_LRH: u32 = !0xDEBB_20E3;

const UDP_BYTES: usize = 8;

/// CRC-32 of Ethernet and of the ICRC.
static SHORT: Polynomial = Polynomial::new(0x04C1_1DB7);
/// From this length of the bytes after the headers on, `crc32fast` is faster than [`SHORT`].
const LONG_BYTES: usize = 256;
/// Headers with masked fields have fewer bytes, in whole blocks.
const HEAD_BYTES: usize = 4 * BLOCK_BYTES;

/// The state of a CRC-32 before the first byte of a packet. Making a hasher detects the features of
/// the processor, so each packet gets a copy.
struct Seed {
    initial: u32,
    hasher: OnceBox<Hasher>,
}

impl Seed {
    const fn new(initial: u32) -> Self {
        Self { initial, hasher: OnceBox::new() }
    }

    #[inline]
    fn hasher(&self) -> Hasher {
        self.hasher.get_or_init(|| Box::new(Hasher::new_with_initial(self.initial))).clone()
    }
}

static NATIVE: Seed = Seed::new(0);
static ROCE: Seed = Seed::new(CRC_OF_ABSENT_LRH);

/// Computes the ICRC of the packet; its wire bytes are `to_le_bytes()`. `None` for raw packets, and
/// if `data` ends before the ICRC begins.
///
/// The masks follow annexes A16 and A17 (RoCE) and section 7.8.1 (native) of the InfiniBand
/// Architecture.
#[must_use]
#[inline]
pub fn icrc(framed: Encapsulation, data: &[u8], loc: &Location) -> Option<u32> {
    let end = loc.end().checked_sub(ICRC_BYTES)?;
    let covered = data.get(loc.network..end)?;
    let network_bytes = loc.start.checked_sub(loc.network)?;
    match framed {
        Encapsulation::Native => native(covered),
        Encapsulation::RoceV1 => {
            let (mut head, rest) = split::<{ Grh::LEN + Bth::LEN }>(covered)?;
            mask_grh(&mut head, 0);
            head[Grh::LEN + 4] = 0xFF;
            Some(finish(&ROCE, &head, rest))
        }
        Encapsulation::RoceV2Ipv4 if network_bytes == 20 + UDP_BYTES => {
            let (mut head, rest) = split::<{ 20 + UDP_BYTES + Bth::LEN }>(covered)?;
            mask_ipv4(&mut head);
            mask_udp_and_bth(&mut head, 20);
            Some(finish(&ROCE, &head, rest))
        }
        Encapsulation::RoceV2Ipv6 if network_bytes == 40 + UDP_BYTES => {
            let (mut head, rest) = split::<{ 40 + UDP_BYTES + Bth::LEN }>(covered)?;
            mask_grh(&mut head, 0);
            mask_udp_and_bth(&mut head, 40);
            Some(finish(&ROCE, &head, rest))
        }
        Encapsulation::RoceV2Ipv4 => {
            let (mut ip, rest) = split::<20>(covered)?;
            mask_ipv4(&mut ip);
            with_options(&ip, rest, network_bytes)
        }
        Encapsulation::RoceV2Ipv6 => {
            let (mut ip, rest) = split::<40>(covered)?;
            mask_grh(&mut ip, 0);
            with_options(&ip, rest, network_bytes)
        }
    }
}

/// Checks the ICRC of the packet.
#[must_use]
#[inline]
pub fn verify_icrc(data: &[u8], loc: &Location) -> CrcVerdict {
    if loc.encapsulation == Encapsulation::Native
        && data.get(loc.start.saturating_add(1)).is_some_and(|byte| byte & 0x03 < Lrh::LNH_LOCAL)
    {
        return CrcVerdict::None;
    }
    let end = loc.end();
    let sent = end.checked_sub(ICRC_BYTES).and_then(|at| data.get(at..end));
    match (sent, icrc(loc.encapsulation, data, loc)) {
        (Some(sent), Some(computed)) if sent == computed.to_le_bytes() => CrcVerdict::Ok,
        (Some(_), Some(_)) => CrcVerdict::Bad,
        _ => CrcVerdict::Truncated,
    }
}

/// Checks the VCRC of the packet. [`CrcVerdict::None`] on RoCE, and if the recorder dropped the
/// VCRC. A mismatch does not prove corruption: some adapters do not preserve the VCRC of mirrored
/// packets.
#[must_use]
#[inline]
pub fn verify_vcrc(data: &[u8], loc: &Location) -> CrcVerdict {
    if loc.encapsulation != Encapsulation::Native || data.len() == loc.end() {
        return CrcVerdict::None;
    }
    let end = loc.end();
    match (data.get(loc.start..end), data.get(end..end.saturating_add(VCRC_BYTES))) {
        (Some(covered), Some(sent)) if sent == vcrc(covered).to_le_bytes() => CrcVerdict::Ok,
        (Some(_), Some(_)) => CrcVerdict::Bad,
        _ => CrcVerdict::Truncated,
    }
}

/// ICRC over LRH, GRH (if any), BTH and the rest.
#[inline]
fn native(covered: &[u8]) -> Option<u32> {
    match covered.get(1)? & 0x03 {
        Lrh::LNH_LOCAL => {
            let (mut head, rest) = split::<{ Lrh::LEN + Bth::LEN }>(covered)?;
            head[0] |= 0xF0;
            head[Lrh::LEN + 4] = 0xFF;
            Some(finish(&NATIVE, &head, rest))
        }
        Lrh::LNH_GLOBAL => {
            let (mut head, rest) = split::<{ Lrh::LEN + Grh::LEN + Bth::LEN }>(covered)?;
            head[..Lrh::LEN].fill(0xFF);
            mask_grh(&mut head, Lrh::LEN);
            head[Lrh::LEN + Grh::LEN + 4] = 0xFF;
            Some(finish(&NATIVE, &head, rest))
        }
        _ => None,
    }
}

/// Copies the first `N` bytes, which include all masked fields; returns the rest by reference.
#[inline]
fn split<const N: usize>(covered: &[u8]) -> Option<([u8; N], &[u8])> {
    covered.split_first_chunk::<N>().map(|(head, rest)| (*head, rest))
}

/// Masks traffic class, flow label and hop limit of a GRH or an IPv6 header.
fn mask_grh<const N: usize>(head: &mut [u8; N], at: usize) {
    if let Some(header) = head.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        header[0] |= 0x0F;
        header[1..4].fill(0xFF);
        header[7] = 0xFF;
    }
}

/// Masks type of service, time to live and header checksum.
fn mask_ipv4<const N: usize>(head: &mut [u8; N]) {
    if let Some(header) = head.first_chunk_mut::<20>() {
        header[1] = 0xFF;
        header[8] = 0xFF;
        header[10..12].fill(0xFF);
    }
}

/// Masks the checksum of the UDP header at `at` and byte 4 (the congestion bits) of the BTH after
/// it.
fn mask_udp_and_bth<const N: usize>(head: &mut [u8; N], at: usize) {
    if let Some(header) = head.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<{ UDP_BYTES + Bth::LEN }>()) {
        header[6..8].fill(0xFF);
        header[UDP_BYTES + 4] = 0xFF;
    }
}

/// ICRC of a packet with IP options or extension headers, which are covered without a mask, between
/// IP and UDP header.
fn with_options(ip: &[u8], rest: &[u8], network_bytes: usize) -> Option<u32> {
    let option_bytes = network_bytes.checked_sub(ip.len() + UDP_BYTES)?;
    let (options, rest) = rest.split_at_checked(option_bytes)?;
    let (mut head, rest) = split::<{ UDP_BYTES + Bth::LEN }>(rest)?;
    mask_udp_and_bth(&mut head, 0);
    let mut hasher = ROCE.hasher();
    hasher.update(ip);
    hasher.update(options);
    hasher.update(&head);
    hasher.update(rest);
    Some(hasher.finalize())
}

#[inline]
fn finish<const N: usize>(seed: &Seed, head: &[u8; N], rest: &[u8]) -> u32 {
    if rest.len() < LONG_BYTES
        && let Some(sum) = short(!seed.initial, head, rest)
    {
        return sum;
    }
    let mut hasher = seed.hasher();
    hasher.update(head);
    hasher.update(rest);
    hasher.finalize()
}

/// The CRC-32 of a short packet, if the processor has carry-less multiplication. `state` is the one
/// before its first byte.
#[inline]
fn short<const N: usize>(state: u32, head: &[u8; N], rest: &[u8]) -> Option<u32> {
    // Zeros before the first byte do not change the sum.
    let mut padded = [0; HEAD_BYTES];
    let padded = padded.get_mut(..N.next_multiple_of(BLOCK_BYTES))?;
    let (_, own) = padded.split_last_chunk_mut::<N>()?;
    *own = *head;
    let first = own.first_chunk_mut()?;
    *first = (u32::from_le_bytes(*first) ^ state).to_le_bytes();
    Some(!SHORT.checksum(padded.as_chunks().0, rest)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::{
        CM_REQ, CNP, ERF_ATOMIC_ACK, ERF_READ_REQUEST, ETHERNET, NATIVE, NATIVE_ACK, NATIVE_GLOBAL, ROCE_V1,
        ROCE_V2_IPV4_OPTIONS, ROCE_V2_IPV6, ROCE_V2_IPV6_EXTENSIONS, UC_SEND,
    };
    use crate::link::{LinkContent, locate};

    fn located(link_type: LinkType, data: &[u8]) -> Location {
        match locate(link_type, data, data.len() as u32) {
            Ok(LinkContent::Infiniband(location)) => location,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn published_and_recorded_packets_verify() {
        let ethernet = LinkType::ETHERNET;
        assert_eq!(verify_icrc(&CNP, &located(ethernet, &CNP)), CrcVerdict::Ok);
        assert_eq!(icrc(Encapsulation::RoceV2Ipv4, &CNP, &located(ethernet, &CNP)), Some(0x2A00_FD82));
        // scapy prints 0x78f353f3, the wire bytes as a big-endian number.
        assert_eq!(icrc(Encapsulation::RoceV2Ipv4, &UC_SEND, &located(ethernet, &UC_SEND)), Some(0xF353_F378));
        for data in ETHERNET {
            let location = located(ethernet, data);
            assert_eq!(verify_icrc(data, &location), CrcVerdict::Ok, "{location:?}");
            assert_eq!(verify_vcrc(data, &location), CrcVerdict::None);
        }
        for (link_type, data) in NATIVE
            .map(|data| (LinkType::INFINIBAND, data))
            .into_iter()
            .chain([(LinkType::ERF, &ERF_READ_REQUEST[..]), (LinkType::ERF, &ERF_ATOMIC_ACK[..])])
        {
            let location = located(link_type, data);
            assert_eq!(verify_icrc(data, &location), CrcVerdict::Ok, "{location:?}");
            assert_eq!(verify_vcrc(data, &location), CrcVerdict::Ok, "{location:?}");
        }
    }

    /// All lengths around the one from which on `crc32fast` computes the sum, and all lengths of
    /// headers with masked fields.
    #[test]
    fn short_and_long_packets_have_the_same_sum() {
        fn check<const N: usize>(bytes: &[u8]) {
            let head: &[u8; N] = bytes.first_chunk().expect("a head");
            for rest in (0..=LONG_BYTES + 40).map(|length| &bytes[N..N + length]) {
                for seed in [&super::NATIVE, &super::ROCE] {
                    let mut hasher = Hasher::new_with_initial(seed.initial);
                    hasher.update(head);
                    hasher.update(rest);
                    let expected = hasher.finalize();
                    assert_eq!(finish(seed, head, rest), expected, "{N} {}", rest.len());
                    assert!(short(!seed.initial, head, rest).is_none_or(|sum| sum == expected), "{N} {}", rest.len());
                }
            }
        }
        let bytes: std::vec::Vec<u8> = (0..400u32).map(|index| (index.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
        check::<{ Lrh::LEN + Bth::LEN }>(&bytes);
        check::<{ UDP_BYTES + Bth::LEN }>(&bytes);
        check::<{ Grh::LEN + Bth::LEN }>(&bytes);
        check::<{ Lrh::LEN + Grh::LEN + Bth::LEN }>(&bytes);
        check::<{ 20 + UDP_BYTES + Bth::LEN }>(&bytes);
        check::<{ 40 + UDP_BYTES + Bth::LEN }>(&bytes);
    }

    /// Flips every bit in turn: the ICRC may ignore only those under `mask` (offset and bits that
    /// routers change).
    fn check_mask(link_type: LinkType, data: &[u8], mask: &[(usize, u8)]) {
        let location = located(link_type, data);
        for at in location.network..location.end() {
            for bit in (0..8).map(|bit| 1 << bit) {
                // Skip the LNH bits: they select which headers are parsed.
                if location.encapsulation == Encapsulation::Native && at == location.start + 1 && bit <= 2 {
                    continue;
                }
                let masked = mask.iter().any(|&(masked, bits)| masked == at && bits & bit != 0);
                let mut flipped = data.to_vec();
                flipped[at] ^= bit;
                let expected = if masked { CrcVerdict::Ok } else { CrcVerdict::Bad };
                assert_eq!(
                    verify_icrc(&flipped, &location),
                    expected,
                    "{:?} byte {at} bit {bit:#x}",
                    location.encapsulation
                );
            }
        }
        let mut around = data.to_vec();
        around[..location.network].fill(0x5A);
        around[location.end()..].fill(0x5A);
        assert_eq!(verify_icrc(&around, &location), CrcVerdict::Ok);
    }

    #[test]
    fn only_what_routers_change_is_masked() {
        check_mask(LinkType::INFINIBAND, &NATIVE_ACK, &[(0, 0xF0), (12, 0xFF)]);
        // All of the LRH; traffic class, flow label and hop limit of the GRH; byte 4 of the BTH.
        let mut global: std::vec::Vec<_> = (0..8).map(|at| (at, 0xFF)).collect();
        global.extend([(8, 0x0F), (9, 0xFF), (10, 0xFF), (11, 0xFF), (15, 0xFF), (52, 0xFF)]);
        check_mask(LinkType::INFINIBAND, &NATIVE_GLOBAL, &global);
        let v1 = [(14, 0x0F), (15, 0xFF), (16, 0xFF), (17, 0xFF), (21, 0xFF), (58, 0xFF)];
        check_mask(LinkType::ETHERNET, &ROCE_V1, &v1);
        // Type of service, time to live, both checksums, byte 4 of the BTH.
        let ipv4 = [(15, 0xFF), (22, 0xFF), (24, 0xFF), (25, 0xFF), (40, 0xFF), (41, 0xFF), (46, 0xFF)];
        check_mask(LinkType::ETHERNET, &CNP, &ipv4);
        check_mask(LinkType::ETHERNET, &CM_REQ, &ipv4);
        let options = [(15, 0xFF), (22, 0xFF), (24, 0xFF), (25, 0xFF), (48, 0xFF), (49, 0xFF), (54, 0xFF)];
        check_mask(LinkType::ETHERNET, &ROCE_V2_IPV4_OPTIONS, &options);
        let ipv6 = |udp: usize| {
            [
                (14, 0x0F),
                (15, 0xFF),
                (16, 0xFF),
                (17, 0xFF),
                (21, 0xFF),
                (udp + 6, 0xFF),
                (udp + 7, 0xFF),
                (udp + 12, 0xFF),
            ]
        };
        check_mask(LinkType::ETHERNET, &ROCE_V2_IPV6, &ipv6(54));
        check_mask(LinkType::ETHERNET, &ROCE_V2_IPV6_EXTENSIONS, &ipv6(54 + 24));
    }

    #[test]
    fn the_vcrc_covers_every_bit() {
        let location = located(LinkType::INFINIBAND, &NATIVE_ACK);
        for bit in 0..NATIVE_ACK.len() * 8 {
            let mut flipped = NATIVE_ACK;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify_vcrc(&flipped, &location), CrcVerdict::Bad, "bit {bit}");
        }
    }

    #[test]
    fn the_vcrc_is_the_reflected_polynomial_100b() {
        // Computed bit by bit: 0xD008 is 0x100B reversed.
        let mut register = 0xFFFFu16;
        for byte in b"123456789" {
            register ^= u16::from(*byte);
            for _ in 0..8 {
                register = if register & 1 == 1 { register >> 1 ^ 0xD008 } else { register >> 1 };
            }
        }
        assert_eq!(vcrc(b"123456789"), !register);
    }

    #[test]
    fn the_seed_is_the_sum_of_eight_bytes_of_ones() {
        assert_eq!(CRC_OF_ABSENT_LRH, crc32fast::hash(&[0xFF; 8]));
    }

    #[test]
    fn truncated_packets_are_never_bad() {
        let location = located(LinkType::INFINIBAND, &NATIVE_GLOBAL);
        for there in 0..NATIVE_GLOBAL.len() {
            let data = &NATIVE_GLOBAL[..there];
            let icrc = if there < 80 { CrcVerdict::Truncated } else { CrcVerdict::Ok };
            assert_eq!(verify_icrc(data, &location), icrc, "{there}");
            // Dropping the VCRC is not truncation.
            let vcrc = if there == 80 { CrcVerdict::None } else { CrcVerdict::Truncated };
            assert_eq!(verify_vcrc(data, &location), vcrc, "{there}");
        }
        for there in 0..CNP.len() {
            assert_eq!(verify_icrc(&CNP[..there], &located(LinkType::ETHERNET, &CNP)), CrcVerdict::Truncated);
        }
    }

    #[test]
    fn raw_packets_have_no_icrc() {
        let location = located(LinkType::INFINIBAND, &NATIVE_ACK);
        let mut raw = NATIVE_ACK;
        raw[1] &= 0xFC;
        assert_eq!(verify_icrc(&raw, &location), CrcVerdict::None);
        assert_eq!(icrc(Encapsulation::Native, &raw, &location), None);
    }
}
