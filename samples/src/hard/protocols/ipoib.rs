//! IP over InfiniBand (RFC 4391 and 4755): a 4-byte header with the `EtherType` before every IP
//! packet.

use ibscope_parsers::frame::LinkType;

use super::super::Recording;
use super::storage::block;
use super::{Channel, ChannelSide, Conversation};
use crate::Random;

/// Queue key of the broadcast group.
const Q_KEY: u32 = 0x0B1B;
const HEADER: [u8; 4] = [0x08, 0x00, 0, 0];
/// Largest IP packet in datagram mode (2044 and 4092 are usual), and in connected mode.
const DATAGRAM_BYTES: u64 = 2040;
const CONNECTED_BYTES: u64 = 65_516;

/// Datagram mode.
#[must_use]
pub fn datagrams(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    ip_conversation(talk, link_type, random, DATAGRAM_BYTES, |channel, side, packet| {
        channel.datagram(side, Q_KEY, packet);
    })
}

/// Connected mode.
#[must_use]
pub fn connected(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    ip_conversation(talk, link_type, random, CONNECTED_BYTES, Channel::send)
}

fn ip_conversation(
    talk: &Conversation,
    link_type: LinkType,
    random: &mut Random,
    most_bytes: u64,
    send: impl Fn(&mut Channel, ChannelSide, &[u8]),
) -> Recording {
    let psns = [random.next() as u32, random.next() as u32];
    let mut channel = Channel::new(link_type, talk.client, talk.server, psns, talk.start_ns);
    for operation in 0..talk.operations {
        channel.time_ns = channel.time_ns.max(talk.start_ns + operation * talk.step_ns);
        let data_bytes = 40 + random.below(most_bytes - 40) as usize;
        send(&mut channel, ChannelSide::Client, &tcp(1, 2, operation as u32, data_bytes, random));
        send(&mut channel, ChannelSide::Server, &tcp(2, 1, operation as u32, 40, random));
    }
    channel.finish()
}

/// A TCP segment between two hosts of 192.168.7.0/24.
fn tcp(from: u8, to: u8, sequence: u32, bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut packet = HEADER.to_vec();
    packet.extend([0x45, 0]);
    packet.extend((bytes as u16).to_be_bytes());
    packet.extend([(sequence >> 8) as u8, sequence as u8, 0x40, 0, 64, 6, 0, 0]);
    packet.extend([192, 168, 7, from, 192, 168, 7, to]);
    packet.extend([0x03, 0xFF, 0x80, 0x01]);
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    packet.extend(block(bytes - 40, random));
    packet
}
