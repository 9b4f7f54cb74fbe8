//! Several `ob1` messages in one SEND: control type 2 of the `openib` BTL (`btl_openib_frag.h`,
//! `btl_openib_endpoint.h`).
//!
//! ```text
//! P+0 0x20  P+4 2 | P+5 tag u8, 3 unused  P+9 size u32  P+13 allocated u32 | P+17 PML header and data: `size` bytes
//!                   the next such header at P+17 + allocated, and so on to the end of the SEND
//! ```
//! Fields are not aligned. The tag repeats the type of the PML header; the size includes the PML
//! header.

use super::{Identity, bytes};

const CONTROL: u8 = 0x20;
const COALESCED: u8 = 2;
/// Offset of the first header: after the BTL header and the type of the control message.
const FIRST_HEADER_AT: usize = 5;
const HEADER_BYTES: usize = 12;
/// Length of the packed match header of a PML header, which holds sender and tag.
const MATCH_BYTES: u32 = 14;
const MATCH: u8 = 0x41;
const RNDV: u8 = 0x42;
const RGET: u8 = 0x43;
const PML_LAST: u8 = 0x49;
/// Offset of the message length in a RNDV or RGET header.
const LENGTH_AT: usize = 16;
/// Offset of the sequence number in a PML header.
const SEQUENCE_AT: usize = 12;

/// One message of a coalesced SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalescedMessage {
    /// Offset of the PML header in the payload, in bytes.
    pub offset: usize,
    /// BTL tag = type of the PML header, 0x41 to 0x49.
    pub tag: u8,
    /// Length of PML header and data.
    pub size_bytes: u32,
    /// Sender and tag; `None` for PML headers without them (acknowledgement, fragment ...).
    pub identity: Option<Identity>,
    /// Length of the MPI message in bytes; 0 without `identity`.
    pub data_bytes: u64,
    /// Sequence number of the message; `None` without `identity`.
    pub sequence: Option<u16>,
}

/// Iterator over the messages of a coalesced SEND.
#[derive(Clone, Debug)]
pub struct CoalescedMessages<'a> {
    payload: &'a [u8],
    next: usize,
    end: usize,
}

/// Parses the messages of a coalesced SEND whose payload is `message_bytes` long on the wire.
///
/// The iterator ends at the first header that is implausible, was not captured, or exceeds the
/// SEND. `None` if the SEND is not coalesced or its first message is implausible.
#[must_use]
pub fn messages(payload: &[u8], message_bytes: u32) -> Option<CoalescedMessages<'_>> {
    let [tag, _, _, _, kind] = bytes(payload, 0)?;
    if tag != CONTROL || kind != COALESCED {
        return None;
    }
    let parts = CoalescedMessages { payload, next: FIRST_HEADER_AT, end: message_bytes as usize };
    parts.clone().next().is_some().then_some(parts)
}

impl Iterator for CoalescedMessages<'_> {
    type Item = CoalescedMessage;

    fn next(&mut self) -> Option<CoalescedMessage> {
        let part = self.next_message();
        if part.is_none() {
            // Do not parse anything after an implausible header.
            self.next = self.end;
        }
        part
    }
}

impl core::iter::FusedIterator for CoalescedMessages<'_> {}

impl CoalescedMessages<'_> {
    fn next_message(&mut self) -> Option<CoalescedMessage> {
        if self.next >= self.end {
            return None;
        }
        let [tag] = bytes(self.payload, self.next)?;
        let size_bytes = u32::from_le_bytes(bytes(self.payload, self.next.checked_add(4)?)?);
        let allocated = u32::from_le_bytes(bytes(self.payload, self.next.checked_add(8)?)?);
        let offset = self.next.checked_add(HEADER_BYTES)?;
        let end = offset.checked_add(size_bytes as usize)?;
        if !(MATCH..=PML_LAST).contains(&tag) || size_bytes < MATCH_BYTES || allocated < size_bytes || end > self.end {
            return None;
        }
        let [kind, flags] = bytes(self.payload, offset)?;
        let known_flags = if kind == MATCH { 0 } else { 0x3D };
        if kind != tag || flags & !known_flags != 0 {
            return None;
        }
        let (identity, data_bytes) = match kind {
            MATCH => (Some(self.identity(offset)?), u64::from(size_bytes - MATCH_BYTES)),
            RNDV | RGET => {
                let stated = u64::from_le_bytes(bytes(self.payload, offset.checked_add(LENGTH_AT)?)?);
                (Some(self.identity(offset)?), stated)
            }
            _ => (None, 0),
        };
        if data_bytes >= 1 << 48 {
            return None;
        }
        self.next = offset.checked_add(allocated as usize)?;
        let sequence = match identity {
            Some(_) => Some(u16::from_le_bytes(bytes(self.payload, offset.checked_add(SEQUENCE_AT)?)?)),
            None => None,
        };
        Some(CoalescedMessage { offset, tag, size_bytes, identity, data_bytes, sequence })
    }

    fn identity(&self, offset: usize) -> Option<Identity> {
        let header: [u8; 12] = bytes(self.payload, offset)?;
        let [_, _, c0, c1, r0, r1, r2, r3, t0, t1, t2, t3] = header;
        let context = u32::from(u16::from_le_bytes([c0, c1]));
        let rank = u32::from_le_bytes([r0, r1, r2, r3]);
        let tag = i32::from_le_bytes([t0, t1, t2, t3]);
        let plausible = context < 0x1000 && rank < 1 << 20;
        plausible.then_some(Identity { rank, context, tag, world: context == 0, collective: tag < 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise::Noise;
    use alloc::vec::Vec;

    fn match_header(rank: u32, tag: i32) -> Vec<u8> {
        let mut pml = Vec::from([MATCH, 0, 0, 0]);
        pml.extend(rank.to_le_bytes());
        pml.extend(tag.to_le_bytes());
        pml.extend([1, 0]);
        pml
    }

    /// Constructed from the layout: PML header and data of each message, and the bytes allocated
    /// beyond its size.
    fn coalesced(parts: &[(&[u8], usize)]) -> Vec<u8> {
        let mut payload = Vec::from([CONTROL, 0, 0, 0, COALESCED]);
        for &(pml, slack) in parts {
            payload.extend([pml[0], 0, 0, 0]);
            payload.extend((pml.len() as u32).to_le_bytes());
            payload.extend(((pml.len() + slack) as u32).to_le_bytes());
            payload.extend(pml);
            payload.extend(core::iter::repeat_n(0xEE, slack));
        }
        payload
    }

    fn sample() -> Vec<u8> {
        let mut first = match_header(3, 8);
        first.extend([0; 10]);
        let mut ack = [0; 40];
        ack[0] = 0x44;
        let mut third = match_header(3, -12);
        third[0] = RNDV;
        third.extend([0; 2]);
        third.extend(70_000u64.to_le_bytes());
        third.extend([0; 8]);
        coalesced(&[(&first, 2), (&ack, 0), (&third, 0)])
    }

    #[test]
    fn parts_of_a_constructed_send() {
        let payload = sample();
        let parts: Vec<CoalescedMessage> = messages(&payload, payload.len() as u32).unwrap().collect();
        assert_eq!(parts.len(), 3);
        assert_eq!((parts[0].offset, parts[0].tag, parts[0].size_bytes, parts[0].data_bytes), (17, MATCH, 24, 10));
        let identity = Identity { rank: 3, context: 0, tag: 8, world: true, collective: false };
        assert_eq!(parts[0].identity, Some(identity));
        assert_eq!((parts[1].offset, parts[1].identity), (17 + 26 + 12, None));
        assert_eq!((parts[2].tag, parts[2].data_bytes), (RNDV, 70_000));
        assert!(parts[2].identity.unwrap().collective);
    }

    #[test]
    fn truncation_only_shortens_the_list() {
        let payload = sample();
        let whole: Vec<CoalescedMessage> = messages(&payload, payload.len() as u32).unwrap().collect();
        for cut in 0..payload.len() {
            let seen: Vec<CoalescedMessage> =
                messages(&payload[..cut], payload.len() as u32).into_iter().flatten().collect();
            assert_eq!(seen, whole[..seen.len()], "{cut}");
            let fits: Vec<CoalescedMessage> = messages(&payload, cut as u32).into_iter().flatten().collect();
            assert!(fits.iter().all(|part| part.offset + part.size_bytes as usize <= cut), "{cut}");
        }
    }

    #[test]
    fn sizes_cannot_leave_the_payload_or_loop() {
        for (at, value) in [(9, 0u32), (9, u32::MAX), (13, 0), (13, 23)] {
            let mut payload = sample();
            payload[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(messages(&payload, payload.len() as u32).is_none(), "{at} {value}");
        }
        let mut payload = sample();
        payload[13..17].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(messages(&payload, payload.len() as u32).unwrap().count(), 1);
    }

    #[test]
    fn noise_ends_the_list() {
        let mut noise = Noise::new(1);
        let taken = (0..200_000).filter(|_| {
            let mut payload = noise.payload(96);
            payload[..5].copy_from_slice(&[CONTROL, 0, 0, 0, COALESCED]);
            messages(&payload, 96).is_some()
        });
        assert_eq!(taken.count(), 0);
    }
}
