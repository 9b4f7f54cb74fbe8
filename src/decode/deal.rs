//! Packets of a batch -> shards, with each connection once.
//!
//! A batch has many packets of few connections: what follows from the connection alone (its shard, what its packets are counted as) is found with
//! its first packet, and those that follow the decoder look a connection up once for a batch.

use crate::model::{ConnectionKey, Kind, PacketRecord, Packets, Seeded};
use hashbrown::HashTable;
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Qpn};
use std::hash::BuildHasher as _;

/// Connections for which there is room at first.
const FIRST_ROOM: usize = 1 << 10;
/// Numbers of connections that are found at first sight, by some bits of a hash.
const NEAR: usize = 1 << 12;

/// The packets of a batch so far.
pub(super) struct Dealer {
    /// Indices into `places`: of those found last, and of all.
    near: Vec<u32>,
    index: HashTable<u32>,
    hasher: Seeded,
    places: Vec<Place>,
    shards: Vec<Packets>,
}

/// Where the packets of a connection go, and what they are counted as.
#[derive(Clone, Copy)]
pub(super) struct Dealt {
    pub(super) slot: u32,
    shard: u16,
    pub(super) kind: Kind,
}

/// A connection as its packets have it.
struct Place {
    src: Endpoint,
    dst: Endpoint,
    /// Service and both queue pairs.
    word: u64,
    dealt: Dealt,
}

impl Dealer {
    /// For a batch of so many bytes, whose packets go to these lists instead of those that are there.
    pub(super) fn new(mut shards: Vec<Packets>, batch_bytes: usize) -> Self {
        // Room for packets of 128 bytes, twice over because pairs are dealt unevenly.
        let room = batch_bytes / 64 / shards.len().max(1);
        for Packets { keys, records } in &mut shards {
            keys.clear();
            records.clear();
            records.reserve(room);
        }
        Self {
            near: vec![0; NEAR],
            index: HashTable::with_capacity(FIRST_ROOM),
            hasher: Seeded::default(),
            places: Vec::with_capacity(FIRST_ROOM),
            shards,
        }
    }

    /// The place of a packet's connection. `extension` is the source queue pair of a datagram.
    #[expect(clippy::inline_always, reason = "its arguments are in registers")]
    #[inline(always)]
    pub(super) fn add(&mut self, pair: (Endpoint, Endpoint), opcode: Opcode, dest_qp: Qpn, extension: u32) -> Dealt {
        let (src, dst) = pair;
        let src_qp = if opcode.service() == Service::Ud { Qpn::new(extension).value() } else { 0 };
        let word = u64::from(opcode.0 >> 5) << 48 | u64::from(dest_qp.value()) << 24 | u64::from(src_qp);
        let near = near(src, dst, word);
        if let Some(place) = self.places.get(self.near[near] as usize)
            && place.is(src, dst, word)
        {
            return place.dealt;
        }
        let place = self.far(ConnectionKey::of(pair, opcode, dest_qp, extension), word);
        self.near[near] = place;
        self.places[place as usize].dealt
    }

    /// Adds a packet.
    #[expect(clippy::inline_always, reason = "its arguments are in registers")]
    #[inline(always)]
    pub(super) fn put(&mut self, dealt: Dealt, packet: PacketRecord) {
        self.shards[usize::from(dealt.shard)].records.push(packet);
    }

    /// The shards, each with its packets in file order.
    pub(super) fn finish(self) -> Vec<Packets> {
        self.shards
    }

    /// One that has not been seen lately, or never.
    #[inline(never)]
    fn far(&mut self, key: ConnectionKey, word: u64) -> u32 {
        let Self { index, hasher, places, shards, .. } = self;
        let hash = hasher.hash_one((key.src, key.dst, word));
        if let Some(place) = index.find(hash, |place| places[*place as usize].is(key.src, key.dst, word)) {
            return *place;
        }
        let shard = shard_of(key.src, key.dst, shards.len());
        let keys = &mut shards[shard].keys;
        let dealt = Dealt { slot: keys.len() as u32, shard: shard as u16, kind: key.kind };
        keys.push(key);
        let number = places.len() as u32;
        places.push(Place { src: key.src, dst: key.dst, word, dealt });
        index.insert_unique(hash, number, |place| {
            let place = &places[*place as usize];
            hasher.hash_one((place.src, place.dst, place.word))
        });
        number
    }
}

impl Place {
    #[inline]
    fn is(&self, src: Endpoint, dst: Endpoint, word: u64) -> bool {
        self.word == word && self.src == src && self.dst == dst
    }
}

/// Where a connection is looked for among those found last.
#[inline]
const fn near(src: Endpoint, dst: Endpoint, word: u64) -> usize {
    let mixed = src.low_bits() ^ dst.low_bits().rotate_left(20) ^ word.rotate_left(35);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - NEAR.ilog2())) as usize
}

/// Endpoints in either order give the same shard.
fn shard_of(src: Endpoint, dst: Endpoint, shards: usize) -> usize {
    // The sum is symmetric; the multiplication spreads its low bits to the top, and the upper half of a product is as good as a remainder.
    let mixed = src.hash64().wrapping_add(dst.hash64()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((mixed * shards as u64) >> 32) as usize
}
