//! Patterns of constructed traffic: grids of all kinds, other numberings, ranks that share a node,
//! captures of one port.

use super::{PatternName, PhaseOptions, phases};
use crate::analysis::GroupBy;
use crate::model::profile::{ConnectionRow, Input, PairCoverage, RankRow, RetransmissionSums, TimelineRow, Traffic};
use crate::model::{Coverage, Profile, TrafficKind};
use ibscope_parsers::Qpn;
use std::collections::BTreeSet;

const BIN_NS: i64 = 10_000_000;

/// Pairs that exchange 100 messages in each direction in each of ten bins. `per_node` ranks share
/// an endpoint; messages between them are not captured.
fn profile(pairs: impl IntoIterator<Item = (u32, u32)>, per_node: u32) -> Profile {
    let pairs: BTreeSet<(u32, u32)> = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    let endpoint = |rank: u32| (rank / per_node + 1).to_string();
    let qpn = |rank: u32| Qpn::new(rank + 100);
    let traffic = Traffic { packets: 100, messages: 100, payload_bytes: 6400, wire_bytes: 9000, ..Traffic::default() };
    let connection = |&(src, dst): &(u32, u32)| ConnectionRow {
        src: endpoint(src).parse().unwrap(),
        dst: endpoint(dst).parse().unwrap(),
        kind: TrafficKind::Data,
        service: 0,
        dest_qp: qpn(dst),
        src_qp: Some(qpn(src)),
        src_qp_evidence: Some("cm".into()),
        first_time_ns: 0,
        last_time_ns: 10 * BIN_NS,
        traffic,
        retransmissions: RetransmissionSums::default(),
        stack: None,
        job: None,
        class: crate::model::ConnectionClass::default(),
        one_sided: None,
        coverage: PairCoverage::default(),
        sampled: None,
        paths: smallvec::SmallVec::default(),
        is_at_both_ports: Some(true),
    };
    let connections: Vec<ConnectionRow> =
        pairs.iter().filter(|(a, b)| endpoint(*a) != endpoint(*b)).map(connection).collect();
    let rows = |bin: i64| (0..connections.len() as u32).map(move |connection| (bin, connection));
    let timeline = (0..10).flat_map(rows).map(|(bin, connection)| TimelineRow {
        time_ns: bin * BIN_NS,
        connection,
        traffic,
        ..TimelineRow::default()
    });
    let timeline = timeline.collect();
    let ranks = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect::<BTreeSet<u32>>().into_iter().map(|rank| RankRow {
        rank,
        endpoint: endpoint(rank),
        qpn: Some(qpn(rank).value()),
        evidence: "rankmap".to_owned(),
        agreeing: 0,
        disagreeing: 0,
        job: 1,
        inferred: false,
    });
    let input = Input {
        name: "sink.pcap".to_owned(),
        length_bytes: 0,
        xxh3_128: String::new(),
        sha256: None,
        format: String::new(),
        pairs_observed_once: 0,
        pairs_observed_twice: 10,
        clock: None,
        interrupted: false,
        ends_early: false,
        share: None,
        coverage: Coverage::default(),
    };
    Profile { inputs: vec![input], ranks: ranks.collect(), connections, timeline, bin_ns: BIN_NS, ..Profile::default() }
}

fn name(profile: &Profile) -> PatternName {
    let found = phases(profile, &PhaseOptions { by: Some(GroupBy::Rank), window_ns: None });
    let [phase] = &found.phases[..] else { panic!("{} phases", found.phases.len()) };
    phase.pattern.name
}

/// Neighbors on a grid; the last side varies fastest.
fn grid(sides: &[u32], is_round: bool, has_corners: bool) -> Vec<(u32, u32)> {
    let places: u32 = sides.iter().product();
    let at = |mut place: u32| -> Vec<u32> {
        let mut at: Vec<u32> = sides
            .iter()
            .rev()
            .map(|side| {
                let along = place % side;
                place /= side;
                along
            })
            .collect();
        at.reverse();
        at
    };
    let apart = |a: u32, b: u32| -> Vec<u32> {
        let along = at(a).into_iter().zip(at(b)).zip(sides);
        along
            .map(|((a, b), side)| if is_round { a.abs_diff(b).min(side - a.abs_diff(b)) } else { a.abs_diff(b) })
            .collect()
    };
    let are = |a: u32, b: u32| {
        let apart = apart(a, b);
        if has_corners { apart.iter().all(|along| *along <= 1) } else { apart.iter().sum::<u32>() == 1 }
    };
    (0..places).flat_map(|a| (0..a).map(move |b| (a, b))).filter(|(a, b)| are(*a, *b)).collect()
}

/// Renumbers the nodes: multiplied by a number that is coprime to their count.
fn renumbered(pairs: Vec<(u32, u32)>, count: u32, by: u32) -> Vec<(u32, u32)> {
    pairs.into_iter().map(|(a, b)| ((a * by + 3) % count, (b * by + 3) % count)).collect()
}

fn tree(count: u32) -> Vec<(u32, u32)> {
    (1..count).map(|node| (node, (node - 1) / 2)).collect()
}

#[test]
fn grids_have_the_name_of_their_dimensions() {
    for (sides, name_of) in [
        (&[4, 4][..], PatternName::Halo2d),
        (&[3, 5], PatternName::Halo2d),
        (&[8, 8], PatternName::Halo2d),
        (&[2, 9], PatternName::Halo2d),
        (&[3, 3, 3], PatternName::Halo3d),
        (&[4, 4, 4], PatternName::Halo3d),
        (&[2, 3, 4], PatternName::Halo3d),
    ] {
        assert_eq!(name(&profile(grid(sides, false, false), 1)), name_of, "{sides:?}");
        if sides.iter().all(|side| *side > 2) {
            assert_eq!(name(&profile(grid(sides, true, false), 1)), name_of, "{sides:?} round");
        }
        if sides.iter().all(|side| *side > 3) {
            assert_eq!(name(&profile(grid(sides, true, true), 1)), name_of, "{sides:?} round with corners");
            assert_eq!(name(&profile(grid(sides, false, true), 1)), name_of, "{sides:?} with corners");
        }
    }
}

#[test]
fn renumbered_nodes_keep_their_pattern_or_have_none() {
    let ring = |count: u32| (0..count).map(|node| (node, (node + 1) % count)).collect::<Vec<_>>();
    assert_eq!(name(&profile(ring(16), 1)), PatternName::Ring);
    assert_eq!(name(&profile(renumbered(ring(16), 16, 5), 1)), PatternName::Ring);
    assert_eq!(name(&profile(tree(31), 1)), PatternName::Tree);
    assert_eq!(name(&profile(renumbered(tree(31), 31, 7), 1)), PatternName::Tree);
    for sides in [&[4, 4][..], &[8, 8], &[4, 4, 4], &[3, 5]] {
        for is_round in [false, true] {
            let count = sides.iter().product();
            let pairs = renumbered(grid(sides, is_round, false), count, 7);
            assert_eq!(name(&profile(pairs, 1)), PatternName::Unknown, "{sides:?} {is_round}");
        }
    }
}

#[test]
fn a_graph_that_fits_several_patterns_is_unknown() {
    let all = |count: u32| (0..count).flat_map(|a| (0..a).map(move |b| (a, b))).collect::<Vec<_>>();
    for few in [grid(&[2, 2], false, false), all(3), all(4), all(5), vec![(0, 1), (0, 2), (0, 3)]] {
        assert_eq!(name(&profile(few, 1)), PatternName::Unknown);
    }
    assert_eq!(name(&profile(all(6), 1)), PatternName::AllToAll);
    assert_eq!(name(&profile([(0, 1)], 1)), PatternName::Pair);
    assert_eq!(name(&profile([(0, 1), (2, 3), (4, 5)], 1)), PatternName::Pair);
    // Partners at distances of powers of two: a cube of 2 by 2 by 2, or the exchange of a
    // collective.
    let exchange =
        |count: u32| (0..count).flat_map(|a| [1, 2, 4, 8, 16].map(|bit| (a, a ^ bit))).filter(move |(_, b)| *b < count);
    for count in [8, 16, 32] {
        assert_eq!(name(&profile(exchange(count), 1)), PatternName::Unknown, "{count}");
    }
    // An open chain is not a ring.
    assert_eq!(name(&profile((1..16).map(|node| (node, node - 1)), 1)), PatternName::Unknown);
}

#[test]
fn patterns_that_unobserved_traffic_may_contradict_are_unknown() {
    let star = || (1..16).map(|node| (node, 0));
    assert_eq!(name(&profile(star(), 1)), PatternName::MasterWorker);
    for pairs in [star().collect::<Vec<_>>(), tree(31)] {
        let mut of_one_port = profile(pairs, 1);
        of_one_port.connections.iter_mut().for_each(|connection| connection.is_at_both_ports = Some(false));
        assert_eq!(name(&of_one_port), PatternName::Unknown);
    }
    // With four ranks per node, the capture shows one pair of a ring between each two nodes, and
    // some pairs of a star or of pairs. It shows no row of four as a whole.
    for pairs in [
        (0..16).map(|node| (node, (node + 1) % 16)).collect(),
        star().collect(),
        (0..8).map(|node| (node, 15 - node)).collect(),
        grid(&[4, 4], false, false),
    ] {
        assert_eq!(name(&profile(pairs, 4)), PatternName::Unknown);
    }
    // Rows of eight are recognized by the pairs that cross nodes.
    assert_eq!(name(&profile(grid(&[8, 8], false, false), 4)), PatternName::Halo2d);
    assert_eq!(name(&profile(grid(&[4, 4, 4], true, false), 2)), PatternName::Halo3d);
}

/// Adds the traffic of `later`, delayed by `bins`, on connections of its own.
fn add(profile: &mut Profile, later: &Profile, bins: i64) {
    let (count, late_ns) = (profile.connections.len() as u32, bins * BIN_NS);
    profile.connections.extend(later.connections.iter().map(|connection| ConnectionRow {
        first_time_ns: connection.first_time_ns + late_ns,
        last_time_ns: connection.last_time_ns + late_ns,
        dest_qp: Qpn::new(connection.dest_qp.value() + 1000),
        ..connection.clone()
    }));
    profile.timeline.extend(later.timeline.iter().map(|row| TimelineRow {
        time_ns: row.time_ns + late_ns,
        connection: row.connection + count,
        ..*row
    }));
    profile.timeline.sort_by_key(|row| (row.time_ns, row.connection));
}

fn starts(profile: &Profile) -> Vec<i64> {
    let found = phases(profile, &PhaseOptions { by: Some(GroupBy::Endpoint), window_ns: Some(BIN_NS) });
    found.phases.iter().map(|phase| phase.from_ns / BIN_NS).collect()
}

#[test]
fn a_phase_ends_where_all_connections_do() {
    let ring = profile((0..16).map(|node| (node, (node + 1) % 16)), 1);
    // The same pattern after one silent bin, by other queue pairs: another run of the program. By
    // the same queue pairs, the phase continues.
    let mut twice = ring.clone();
    add(&mut twice, &ring, 11);
    assert_eq!(starts(&twice), [0, 11]);
    for connection in &mut twice.connections {
        (connection.first_time_ns, connection.last_time_ns) = (0, 21 * BIN_NS);
    }
    assert_eq!(starts(&twice), [0]);

    // Storage connections continue. Only MPI connections count if an MPI library was detected.
    let mut beside = ring.clone();
    add(&mut beside, &ring, 11);
    beside.mpi_read = true;
    beside.connections.iter_mut().for_each(|connection| connection.stack = Some("ucx".to_owned()));
    let mut storage = profile([(0, 1)], 1);
    storage.connections.iter_mut().for_each(|connection| connection.last_time_ns = 21 * BIN_NS);
    add(&mut beside, &storage, 0);
    assert_eq!(starts(&beside), [0, 11]);
    beside.mpi_read = false;
    assert_eq!(starts(&beside), [0]);

    // Each message has its own connection, so connections end all the time.
    let mut short = profile([(0, 1)], 1);
    short.timeline.truncate(2);
    short.connections.iter_mut().for_each(|connection| connection.last_time_ns = BIN_NS / 2);
    let mut many = short.clone();
    (1..20).for_each(|number| add(&mut many, &short, number * 2));
    assert_eq!(starts(&many), [0]);
}
