//! Classes with the same traffic under other names: queue pair numbers, nodes, rails, several LIDs
//! per port.

use super::partial::windowed;
use crate::library::{Library, RecordingSetup, ports};
use crate::scene::{Scene, SceneJobs, cast, cast_in};
use ibscope_parsers::Endpoint;
use ibscope_samples::Random;
use ibscope_samples::hard::rewrite::{AddressRewrite, QueuePairAddress, lid};
use ibscope_samples::hard::split::shuffle;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Every queue pair of a cast, with or without an owner, sorted.
fn all_ends(cast: &SceneJobs) -> BTreeSet<QueuePairAddress> {
    let named = cast.senders.iter().flat_map(|(receiver, sender)| [*receiver, *sender]);
    cast.owners.keys().copied().chain(named).filter(|(_, qpn)| *qpn > 1).collect()
}

/// Other queue pair numbers: moved by a constant, or random 24-bit numbers.
pub(super) fn renumber(cast: &SceneJobs, random: &mut Random) -> AddressRewrite {
    let offset = 0x100 + random.below(0x8000) as u32;
    let is_random = random.below(2) == 0;
    let mut taken = BTreeSet::new();
    let mut ends = HashMap::new();
    for (endpoint, qpn) in all_ends(cast) {
        let mut renamed = qpn + offset;
        while is_random && (renamed == qpn + offset || taken.contains(&(endpoint, renamed))) {
            renamed = 0x1_0000 + random.below(0xFE_0000) as u32;
        }
        taken.insert((endpoint, renamed));
        ends.insert((endpoint, qpn), (endpoint, renamed));
    }
    AddressRewrite { ends, senders: cast.senders.clone(), ..AddressRewrite::default() }
}

/// Several ports or LIDs per process, in a part of the run.
pub(super) fn in_a_window(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) =
        if random.below(2) == 0 { on_two_rails(library, random) } else { on_four_lids(library, random) };
    let kind = random.below(3);
    windowed(cast, &about, kind, random)
}

pub(super) fn renumbered(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let rewrite = renumber(&cast, random);
    cast.renamed(&rewrite).scene(format!("{about}, other queue pair numbers"))
}

/// Gives the ports of a cast other addresses. Queue pairs keep their numbers.
pub(super) fn move_hosts(cast: &SceneJobs, moved: &BTreeMap<Endpoint, Endpoint>) -> AddressRewrite {
    let host = |endpoint: Endpoint| moved.get(&endpoint).copied().unwrap_or(endpoint);
    let ends = all_ends(cast).into_iter().map(|(endpoint, qpn)| ((endpoint, qpn), (host(endpoint), qpn)));
    // Payloads of RoCE contain IP addresses.
    let addresses = if cast.form == RecordingSetup::Nodes {
        let ip = |endpoint: Endpoint| (endpoint.low_bits() as u32).to_be_bytes();
        moved.iter().map(|(from, to)| (ip(*from), ip(*to))).collect()
    } else {
        HashMap::new()
    };
    AddressRewrite {
        ends: ends.collect(),
        hosts: moved.iter().map(|(from, to)| (*from, *to)).collect(),
        senders: cast.senders.clone(),
        addresses,
        identity: 0,
    }
}

/// A random permutation of the nodes.
pub(super) fn permutation(cast: &SceneJobs, random: &mut Random) -> BTreeMap<Endpoint, Endpoint> {
    let used: BTreeSet<Endpoint> = all_ends(cast).into_iter().map(|end| end.0).collect();
    let from: Vec<Endpoint> = ports(cast.form).into_iter().filter(|port| used.contains(port)).collect();
    let mut to = from.clone();
    shuffle(&mut to, random);
    from.into_iter().zip(to).collect()
}

pub(super) fn permuted(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |run| !run.name.contains("multirail"));
    let moved = permutation(&cast, random);
    let rewrite = move_hosts(&cast, &moved);
    cast.renamed(&rewrite).scene(format!("{about}, {moved:?}"))
}

pub(super) fn second_rail(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = on_two_rails(library, random);
    cast.scene(about)
}

/// Half of the connections use a second port of each process.
fn on_two_rails(library: &Library, random: &mut Random) -> (SceneJobs, String) {
    let (cast, about) = cast(library, random, |run| !run.name.contains("multirail"));
    let other = |endpoint: Endpoint| match endpoint.lid() {
        Some(own) => lid(own.0 + 16),
        None => Endpoint::from_ipv4((endpoint.low_bits() as u32 + (1 << 16)).to_be_bytes()),
    };
    let mut ends = HashMap::new();
    let mut moved = 0;
    let senders: BTreeMap<QueuePairAddress, QueuePairAddress> =
        cast.senders.iter().map(|(receiver, sender)| (*receiver, *sender)).collect();
    for (receiver, sender) in senders {
        if ends.contains_key(&receiver) || ends.contains_key(&sender) {
            continue;
        }
        let is_moved = random.below(2) == 0;
        for end in [receiver, sender] {
            ends.insert(end, (if is_moved { other(end.0) } else { end.0 }, end.1));
        }
        moved += usize::from(is_moved);
    }
    let rewrite = AddressRewrite { ends, senders: cast.senders.clone(), ..AddressRewrite::default() };
    (cast.renamed(&rewrite), format!("{about}, {moved} connections on rail 1"))
}

pub(super) fn lmc(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = on_four_lids(library, random);
    cast.scene(about)
}

/// Four LIDs per port: each queue pair uses one of them.
fn on_four_lids(library: &Library, random: &mut Random) -> (SceneJobs, String) {
    let (cast, about) = cast_in(library, random, RecordingSetup::Sink, |_| true);
    let base = |endpoint: Endpoint| endpoint.lid().map_or(endpoint, |own| lid(own.0 * 4));
    let ends = all_ends(&cast).into_iter().map(|(endpoint, qpn)| {
        let path = random.below(4) as u16;
        ((endpoint, qpn), (lid(base(endpoint).lid().expect("a LID").0 + path), qpn))
    });
    let ends = ends.collect();
    let hosts = ports(RecordingSetup::Sink).into_iter().map(|port| (port, base(port))).collect();
    let rewrite = AddressRewrite { ends, hosts, senders: cast.senders.clone(), ..AddressRewrite::default() };
    (cast.renamed(&rewrite), format!("{about}, four LIDs per port"))
}
