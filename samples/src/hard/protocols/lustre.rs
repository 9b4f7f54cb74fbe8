//! Lustre's network over InfiniBand (`o2iblnd-idl.h`): messages with a magic number, bulk data by
//! RDMA WRITE.

use ibscope_parsers::frame::LinkType;

use super::super::Recording;
use super::storage::block;
use super::{Channel, ChannelSide, Conversation};
use crate::Random;

const MAGIC: u32 = 0x0BE9_1B91;
const VERSION: u16 = 0x12;
/// Message types.
const NOOP: u8 = 0xD0;
const IMMEDIATE: u8 = 0xD1;
const PUT_REQUEST: u8 = 0xD2;
const PUT_ACK: u8 = 0xD4;
const PUT_DONE: u8 = 0xD5;
const GET_REQUEST: u8 = 0xD6;
const GET_DONE: u8 = 0xD7;
/// Length of the Lustre network header inside messages.
const LNET_HEADER_BYTES: usize = 72;

/// A client writes to and reads from a server.
#[must_use]
pub fn o2iblnd(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    let psns = [random.next() as u32, random.next() as u32];
    let stamps = [random.next() >> 12, random.next() >> 12];
    let mut channel = Channel::new(link_type, talk.client, talk.server, psns, talk.start_ns);
    let message = |from: ChannelSide, kind: u8, body: &[u8]| {
        let nids = [0x0005_0000_C0A8_0701u64, 0x0005_0000_C0A8_0702];
        let (own, peer) = (from as usize, 1 - from as usize);
        let mut message = MAGIC.to_le_bytes().to_vec();
        message.extend(VERSION.to_le_bytes());
        message.extend([kind, 1]);
        message.extend((48 + body.len() as u32).to_le_bytes());
        message.extend([0; 4]);
        for number in [nids[own], stamps[own], nids[peer], stamps[peer]] {
            message.extend(number.to_le_bytes());
        }
        message.extend(body);
        message
    };
    for operation in 0..talk.operations {
        channel.time_ns = channel.time_ns.max(talk.start_ns + operation * talk.step_ns);
        let mut header = vec![0; LNET_HEADER_BYTES + 8];
        header[32..40].copy_from_slice(&operation.to_le_bytes());
        let place = (random.below(1 << 40), random.next() as u32);
        match random.below(4) {
            0 => channel.send(ChannelSide::Client, &message(ChannelSide::Client, NOOP, &[])),
            1 => {
                let data = block(1024, random);
                channel.send(ChannelSide::Client, &message(ChannelSide::Client, IMMEDIATE, &[header, data].concat()));
            }
            2 => {
                let data = block(65_536, random);
                channel.send(ChannelSide::Client, &message(ChannelSide::Client, PUT_REQUEST, &header));
                channel.send(ChannelSide::Server, &message(ChannelSide::Server, PUT_ACK, &header[..48]));
                channel.write(ChannelSide::Client, place, &data);
                channel.send(ChannelSide::Client, &message(ChannelSide::Client, PUT_DONE, &header[..16]));
            }
            _ => {
                let data = block(65_536, random);
                channel.send(ChannelSide::Client, &message(ChannelSide::Client, GET_REQUEST, &header));
                channel.write(ChannelSide::Server, place, &data);
                channel.send(ChannelSide::Server, &message(ChannelSide::Server, GET_DONE, &header[..16]));
            }
        }
    }
    channel.finish()
}
