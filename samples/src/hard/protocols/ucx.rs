//! Programs that send tagged messages over UCX without MPI: the tag is `id << 32 | n`.

use ibscope_parsers::frame::LinkType;

use super::super::Recording;
use super::storage::block;
use super::{Channel, ChannelSide, Conversation};
use crate::Random;

/// Active message ids: wire-up, eager, ready to send, "all read".
const WIREUP: u8 = 1;
const EAGER_ONLY: u8 = 2;
const READY_TO_SEND: u8 = 9;
const ALL_READ: u8 = 10;
/// Id of the first program; the second has the next one.
const FIRST_ID: u64 = 1001;

/// Two programs send each other eager messages, and large ones that the receiver READs.
#[must_use]
pub fn tagged(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    let psns = [random.next() as u32, random.next() as u32];
    let mut channel = Channel::new(link_type, talk.client, talk.server, psns, talk.start_ns);
    let workers = [random.next(), random.next()];
    // Request, reply, acknowledgement.
    for (kind, side) in [(1, ChannelSide::Client), (2, ChannelSide::Server), (3, ChannelSide::Client)] {
        let number = [talk.client.1, talk.server.1][side as usize];
        channel.send(side, &wireup(kind, workers[side as usize], number));
    }
    for operation in 0..talk.operations {
        channel.time_ns = channel.time_ns.max(talk.start_ns + operation * talk.step_ns);
        for (side, other) in [(ChannelSide::Client, ChannelSide::Server), (ChannelSide::Server, ChannelSide::Client)] {
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
            // Operation "tag", and a packed remote key.
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

/// A wire-up message: type, error mode, connection, both endpoints, the sender's worker, and an
/// address that ends with a queue pair.
fn wireup(kind: u8, worker: u64, queue_pair: u32) -> Vec<u8> {
    let mut message = vec![WIREUP, kind, 0, 0, 0];
    for endpoint in [0x7F12_E114_30B0u64, if kind == 1 { 0 } else { 0x7FD1_5EE2_4108 }] {
        message.extend(endpoint.to_le_bytes());
    }
    message.push(0x20);
    message.extend(worker.to_le_bytes());
    message.extend([0, 0xFF, 0xFF, 0x0A, 0x4D, 0, 1, 0x27, 0x8A, 0xB0, 0x0F, 0xA1, 0x33, 0x04, 0]);
    message.extend(&queue_pair.to_le_bytes()[..3]);
    message.push(0x80);
    message
}
