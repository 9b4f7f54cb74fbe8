//! Assigns the packets of a batch to shards, and lists each connection once per combination of its
//! path fields (SL, P_Key, DSCP, UDP source port ...).
//!
//! A batch has many packets of few connections, and the packets of a connection rarely differ in
//! their path fields. So the shard and the traffic kind of a connection are determined at its first
//! packet, later stages look up each connection once per batch, and a packet record needs no room
//! for the path fields.

use crate::model::{ConnectionKey, PacketRecord, Packets, SeededHasher, TrafficKind};
use hashbrown::HashTable;
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, PathFields, Qpn};
use std::hash::BuildHasher as _;

/// Least initial room for connections.
const FIRST_ROOM: usize = 1 << 10;
/// Recently found connections, by some bits of a hash: most packets find theirs here.
const RECENT_SLOTS: usize = 1 << 12;

/// The packets of a batch so far.
pub(super) struct ShardDispatcher {
    /// Indices into `slots`: `recent` by a cheap hash, `index` all of them.
    recent: Box<[u32; RECENT_SLOTS]>,
    index: HashTable<u32>,
    hasher: SeededHasher,
    slots: Vec<ConnectionSlot>,
    shards: Vec<Packets>,
}

/// Shard, slot and traffic kind of the packets of a connection.
#[derive(Clone, Copy)]
pub(super) struct PacketRoute {
    pub(super) slot: u32,
    shard: u16,
    pub(super) kind: TrafficKind,
}

/// A connection with one combination of path fields, by the fields of its packets. One cache line.
#[repr(align(64))]
struct ConnectionSlot {
    src: Endpoint,
    dst: Endpoint,
    /// Service and both queue pairs.
    word: u64,
    path: PathFields,
    route: PacketRoute,
}

impl ShardDispatcher {
    /// A dispatcher for a batch of this length. Its packets replace the contents of `shards`.
    pub(super) fn new(mut shards: Vec<Packets>, batch_bytes: usize) -> Self {
        // Room for packets of 128 bytes, twice over because pairs are distributed unevenly.
        let room = batch_bytes / 64 / shards.len().max(1);
        // The lists were used before, by a batch that probably had as many connections.
        let connections = shards.iter().map(|packets| packets.keys.len()).sum::<usize>().max(FIRST_ROOM);
        for packets in &mut shards {
            packets.clear();
            packets.records.reserve(room);
        }
        Self {
            recent: Box::new([0; RECENT_SLOTS]),
            index: HashTable::with_capacity(connections),
            hasher: SeededHasher::default(),
            slots: Vec::with_capacity(connections),
            shards,
        }
    }

    /// Shard, slot and kind of a packet. `extension` is the source queue pair of a datagram.
    #[expect(clippy::inline_always, reason = "its arguments are in registers")]
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        pair: (Endpoint, Endpoint),
        opcode: Opcode,
        dest_qp: Qpn,
        extension: u32,
        path: PathFields,
    ) -> PacketRoute {
        let (src, dst) = pair;
        let src_qp = if opcode.service() == Service::Ud { Qpn::new(extension).value() } else { 0 };
        let word = u64::from(opcode.0 >> 5) << 48 | u64::from(dest_qp.value()) << 24 | u64::from(src_qp);
        let near = recent_index(src, dst, word, path);
        if let Some(place) = self.slots.get(self.recent[near] as usize)
            && place.is(src, dst, word, path)
        {
            return place.route;
        }
        let place = self.find_or_add(ConnectionKey::of(pair, opcode, dest_qp, extension), word, path);
        self.recent[near] = place;
        self.slots[place as usize].route
    }

    /// Adds a packet.
    #[expect(clippy::inline_always, reason = "its arguments are in registers")]
    #[inline(always)]
    pub(super) fn put(&mut self, route: PacketRoute, packet: PacketRecord) {
        self.shards[usize::from(route.shard)].records.push(packet);
    }

    /// The shards, each with its packets in file order.
    pub(super) fn finish(self) -> Vec<Packets> {
        self.shards
    }

    /// Finds a connection that is not in `recent`, or adds it.
    #[inline(never)]
    fn find_or_add(&mut self, key: ConnectionKey, word: u64, path: PathFields) -> u32 {
        let Self { index, hasher, slots, shards, .. } = self;
        let hash = hasher.hash_one((key.src, key.dst, word, path));
        if let Some(place) = index.find(hash, |place| slots[*place as usize].is(key.src, key.dst, word, path)) {
            return *place;
        }
        let shard = shard_of(key.src, key.dst, shards.len());
        let Packets { keys, paths, .. } = &mut shards[shard];
        let route = PacketRoute { slot: keys.len() as u32, shard: shard as u16, kind: key.kind };
        keys.push(key);
        paths.push(path);
        let number = slots.len() as u32;
        slots.push(ConnectionSlot { src: key.src, dst: key.dst, word, path, route });
        index.insert_unique(hash, number, |place| {
            let place = &slots[*place as usize];
            hasher.hash_one((place.src, place.dst, place.word, place.path))
        });
        number
    }
}

impl ConnectionSlot {
    #[inline]
    fn is(&self, src: Endpoint, dst: Endpoint, word: u64, path: PathFields) -> bool {
        self.word == word && self.path == path && self.src == src && self.dst == dst
    }
}

/// Index of a connection in `recent`.
#[inline]
const fn recent_index(src: Endpoint, dst: Endpoint, word: u64, path: PathFields) -> usize {
    // Of the path fields, ECN and the port differ most often within a batch.
    let mixed = src.low_bits() ^ dst.low_bits().rotate_left(20) ^ word.rotate_left(35) ^ path.bits();
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT_SLOTS.ilog2())) as usize
}

/// The shard of two endpoints, in either order.
fn shard_of(src: Endpoint, dst: Endpoint, shards: usize) -> usize {
    // The sum is symmetric. The multiplication moves its low bits to the top, and the upper half of
    // a product replaces a remainder.
    let mixed = src.hash64().wrapping_add(dst.hash64()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((mixed * shards as u64) >> 32) as usize
}
