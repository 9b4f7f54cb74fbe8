//! Programs that send tagged messages over UCX without MPI: the tag is `id << 32 | n`.

use ibscope_parsers::frame::LinkType;

use super::super::Recording;
use super::storage::block;
use super::{Channel, Side, Talk};
use crate::Random;

/// Active messages: eager, ready to send, all read.
const EAGER_ONLY: u8 = 2;
const READY_TO_SEND: u8 = 9;
const ALL_READ: u8 = 10;
/// Ids of the two programs.
const FIRST_ID: u64 = 1001;

/// Two programs send each other eager messages, and large ones that the receiver reads.
#[must_use]
pub fn tagged(talk: &Talk, link_type: LinkType, random: &mut Random) -> Recording {
    let psns = [random.next() as u32, random.next() as u32];
    let mut channel = Channel::new(link_type, talk.client, talk.server, psns, talk.start_ns);
    for operation in 0..talk.operations {
        channel.time_ns = channel.time_ns.max(talk.start_ns + operation * talk.step_ns);
        for (side, other) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
            let tag = (FIRST_ID + side as u64) << 32 | operation;
            if random.below(4) > 0 {
                let bytes = 8 + random.below(2000) as usize;
                let data = block(bytes, random);
                channel.send(side, &[&[EAGER_ONLY][..], &tag.to_le_bytes(), &data].concat());
                continue;
            }
            let (address, key) = (0x7F00_0000_0000 | random.below(1 << 30), random.next() as u32);
            let (endpoint, request, size) = (0x10 + side as u64, 0x100 + operation, 65_536u64);
            let mut offer = vec![READY_TO_SEND];
            for number in [tag, endpoint, request, address, size] {
                offer.extend(number.to_le_bytes());
            }
            // Opcode "tag", and a packed remote key.
            offer.extend([0, 1, 0, 0x10]);
            offer.extend(key.to_le_bytes());
            channel.send(side, &offer);
            let data = block(size as usize, random);
            channel.read(other, (address, key), &data);
            channel.send(other, &[&[ALL_READ][..], &request.to_le_bytes(), &[0]].concat());
        }
    }
    channel.finish()
}
