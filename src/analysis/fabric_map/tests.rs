//! Arithmetic on two-level trees that are written by hand.

use super::*;
use crate::analysis::fixture::connection;
use ibscope_parsers::tools::{forwarding, ibnetdiscover};
use std::fmt::Write as _;

/// A cable between two ports, as `ibnetdiscover -p` prints it from one end: kind, LID, port, GUID.
fn cable(text: &mut String, near: (&str, u16, u8, u64), far: (&str, u16, u8, u64)) {
    let end = |(kind, lid, port, guid): (&str, u16, u8, u64)| format!("{kind} {lid} {port} {guid:#x}");
    _ = writeln!(text, "{} 4x HDR - {} ( 'g{:x}' - 'g{:x}' )", end(near), end(far), near.3, far.3);
}

/// Two leaves (GUIDs 0xa and 0xb) with `hosts` hosts each, at ports 1 to `hosts`, and spines 0x51,
/// 0x52 ... at the ports behind. Hosts have the LIDs 1, 2 ... and the same GUIDs plus 0x100; spines
/// are connected to leaf 0xa by port 1 and to leaf 0xb by port 2.
fn tree(hosts: u8, spines: u8) -> FabricGraph {
    let mut text = String::new();
    for (leaf, lid, first) in [(0xa, 1000, 0), (0xb, 1001, hosts)] {
        for port in 1..=hosts {
            let host = u16::from(first) + u16::from(port);
            cable(&mut text, ("CA", host, 1, 0x100 + u64::from(host)), ("SW", lid, port, leaf));
        }
        for spine in 1..=spines {
            let far = ("SW", 1001 + u16::from(spine), (lid - 999) as u8, 0x50 + u64::from(spine));
            cable(&mut text, ("SW", lid, hosts + spine, leaf), far);
        }
    }
    FabricGraph::of(&ibnetdiscover::parse_ports(&text).expect("text")).expect("fabric")
}

/// A table that sends the packets to each LID through a port.
fn table(switch: u64, ports: &[(u16, u8)]) -> String {
    let head = format!("Unicast lids [0x0-0x9] of switch Lid 1 guid {switch:#x} (s):\n");
    ports.iter().fold(head, |text, (lid, port)| format!("{text}{lid:#06x} {port:03} \n"))
}

fn tables(text: &str) -> ForwardingTables {
    ForwardingTables::of(&forwarding::parse_tables(text).expect("text"))
}

/// Connections between LIDs: 4000 bytes on the wire and 3000 of payload per unit.
fn profile(pairs: &[(u16, u16, u64)]) -> Profile {
    let connections = pairs.iter().map(|&(src, dst, unit)| connection(None, (src, 1), (dst, 2), unit));
    Profile { connections: connections.collect(), ..Profile::default() }
}

/// Bytes on the wire and their upper bound by the GUIDs of the ends.
fn loads(map: &FabricMap) -> BTreeMap<(u64, u64), (u64, u64)> {
    map.links
        .iter()
        .map(|own| ((own.from.guid, own.to.guid), (own.traffic.wire_bytes, own.upper_wire_bytes.expect("all ports"))))
        .collect()
}

/// LIDs 1 and 2 are on leaf 0xa, 3 and 4 on 0xb: 1 to 3 and 2 to 4 take 4 links, 1 to 2 takes 2.
#[test]
fn a_tree_with_one_spine_has_one_route_per_pair() {
    let map = fabric_map(&profile(&[(1, 3, 1), (2, 4, 2), (1, 2, 1)]), &tree(2, 1), None, None);
    assert_eq!((map.host_ports, map.switches, map.cables, map.ports), (4, 3, 6, 4));
    assert_eq!(map.traffic, LinkTraffic { pairs: 3, wire_bytes: 16_000, payload_bytes: 12_000 });
    assert_eq!(map.hop_bytes, 4 * 4000 + 4 * 8000 + 2 * 4000);
    let expected = [
        ((0xa, 0x51), 12_000),
        ((0xa, 0x102), 4000),
        ((0xb, 0x51), 0),
        ((0xb, 0x103), 4000),
        ((0xb, 0x104), 8000),
        ((0x51, 0xa), 0),
        ((0x51, 0xb), 12_000),
        ((0x101, 0xa), 8000),
        ((0x102, 0xa), 8000),
    ];
    assert_eq!(loads(&map), expected.map(|(ends, bytes)| (ends, (bytes, bytes))).into());
    let hottest = map.hottest().expect("one");
    assert_eq!((hottest.from.guid, hottest.from.number, hottest.from_name.as_str()), (0xa, 3, "ga"));
    assert!(map.left_out.is_empty());
}

/// Processes of 1 and 4 swap: then 1 to 3 is inside leaf 0xb, 2 to 4 inside leaf 0xa, and 1 to 2
/// takes 4 links: 2 * 4000 + 2 * 8000 + 4 * 4000.
#[test]
fn a_swap_of_two_nodes_saves_links() {
    let map = fabric_map(&profile(&[(1, 3, 1), (2, 4, 2), (1, 2, 1)]), &tree(2, 1), None, None);
    let placement = map.placement.expect("known");
    assert_eq!((placement.before_hop_bytes, placement.after_hop_bytes), (56_000, 40_000));
    let go = |node: &str, to_node: &str| ProcessMove { node: node.to_owned(), to_node: to_node.to_owned() };
    assert_eq!(placement.moves, [go("g101", "g104"), go("g104", "g101")]);
    assert!(!placement.is_unfinished);
}

/// LIDs 1 and 3 are ports of one node, 2 and 4 of another. Swapping both ports changes nothing, and
/// a single port cannot move.
#[test]
fn all_ports_of_a_node_move_together() {
    let mut profile = profile(&[(1, 4, 1), (3, 2, 1)]);
    for (lid, name) in [(1, "x"), (3, "x/mlx5_1:1"), (2, "y"), (4, "y/mlx5_1:1")] {
        profile.names.insert(Endpoint::from_lid(Lid(lid)), name.to_owned());
    }
    let placement = fabric_map(&profile, &tree(2, 1), None, None).placement.expect("known");
    assert_eq!((placement.before_hop_bytes, placement.after_hop_bytes), (32_000, 32_000));
    assert!(placement.moves.is_empty());
    // A node with one port does not swap with a node with two.
    profile.names.remove(&Endpoint::from_lid(Lid(4)));
    let placement = fabric_map(&profile, &tree(2, 1), None, None).placement.expect("known");
    assert!(placement.moves.iter().all(|own| own.node != "x" && own.to_node != "x"), "{placement:?}");
}

/// With two spines, the links of the hosts are known, and those between switches are not.
#[test]
fn several_shortest_paths_leave_links_open() {
    let map = fabric_map(&profile(&[(1, 3, 1), (1, 2, 1)]), &tree(2, 2), None, None);
    let loads = loads(&map);
    assert_eq!(loads[&(0x101, 0xa)], (8000, 8000));
    assert_eq!(loads[&(0xb, 0x103)], (4000, 4000));
    for link in [(0xa, 0x51), (0xa, 0x52), (0x51, 0xb), (0x52, 0xb)] {
        assert_eq!(loads[&link], (0, 4000), "{link:x?}");
    }
    assert_eq!(loads[&(0x51, 0xa)], (0, 0));
    assert_eq!(map.hop_bytes, 4 * 4000 + 2 * 4000);
    assert!(map.has_open_routes() && map.hottest().is_none());
}

#[test]
fn forwarding_tables_choose_the_spine() {
    let text = [
        table(0xa, &[(1, 1), (2, 2), (3, 4), (4, 3)]),
        table(0x51, &[(1, 1), (2, 1), (3, 2), (4, 2)]),
        table(0x52, &[(1, 1), (2, 1), (3, 2), (4, 2)]),
        table(0xb, &[(3, 1), (4, 2)]),
    ];
    let profile = profile(&[(1, 3, 1), (1, 4, 2), (3, 1, 5)]);
    let map = fabric_map(&profile, &tree(2, 2), Some(&tables(&text.concat())), None);
    let loads = loads(&map);
    assert_eq!((loads[&(0xa, 0x52)], loads[&(0x52, 0xb)]), ((4000, 24_000), (4000, 24_000)));
    assert_eq!((loads[&(0xa, 0x51)], loads[&(0x51, 0xb)]), ((8000, 28_000), (8000, 28_000)));
    // Leaf 0xb has no entry for LID 1: the 20 000 bytes may be on any link, also on the hottest.
    assert_eq!(
        map.left_out,
        [(NoRoute::NoEntry, LinkTraffic { pairs: 1, wire_bytes: 20_000, payload_bytes: 15_000 })].into()
    );
    assert!(map.hottest().is_none());
    assert_eq!(map.placement, Err(NoPlacement::Route(NoRoute::NoEntry)));
}

#[test]
fn tables_that_lead_nowhere_are_reported() {
    let reason = |text: String| {
        let map = fabric_map(&profile(&[(1, 3, 1)]), &tree(2, 1), Some(&tables(&text)), None);
        assert_eq!(map.traffic.pairs, 0);
        map.left_out.into_keys().next().expect("left out")
    };
    let spine = |port| table(0x51, &[(3, port)]);
    assert_eq!(reason(table(0xa, &[(3, 3)])), NoRoute::NoTable);
    assert_eq!(reason(table(0xa, &[(3, 9)])), NoRoute::Astray);
    assert_eq!(reason(table(0xa, &[(3, 2)])), NoRoute::Astray);
    // Leaf and spine send to each other.
    assert_eq!(reason(table(0xa, &[(3, 3)]) + &spine(1)), NoRoute::Astray);
    assert_eq!(reason(table(0xa, &[(3, 3)]) + &spine(2)), NoRoute::NoTable);
}

#[test]
fn endpoints_outside_the_fabric_are_left_out() {
    let map = fabric_map(&profile(&[(1, 77, 1), (1, 2, 1)]), &tree(2, 1), None, None);
    assert_eq!(map.left_out.keys().copied().collect::<Vec<_>>(), [NoRoute::NotInFabric]);
    assert_eq!((map.traffic.pairs, map.hop_bytes), (1, 8000));
    // The tables name the port of the second LID of a host.
    let text = table(0xa, &[(1, 1), (2, 2)]) + "0x004d 002 : (Channel Adapter portguid 0x102: 'x')\n";
    let map = fabric_map(&profile(&[(1, 77, 1)]), &tree(2, 1), Some(&tables(&text)), None);
    assert_eq!((map.left_out.len(), map.hop_bytes), (0, 8000));
    assert_eq!(loads(&map)[&(0xa, 0x102)], (4000, 4000));
}

/// 257 ports: the links are known, another placement is not.
#[test]
fn more_ports_than_the_bound_are_not_placed() {
    let pairs = |ports: usize| -> Vec<(u16, u16, u64)> { (2..=ports as u16).map(|lid| (1, lid, 1)).collect() };
    let fabric = tree(150, 1);
    let placement = |ports| fabric_map(&profile(&pairs(ports)), &fabric, None, None).placement;
    assert_eq!(placement(MAX_PLACED_PORTS + 1), Err(NoPlacement::TooManyPorts));
    assert!(placement(MAX_PLACED_PORTS).is_ok());
}

/// The first pass helps, so only a second one could show that no swap helps.
#[test]
fn a_search_that_ends_at_its_bound_says_so() {
    let fabric = tree(2, 1);
    let mut finder = RouteFinder::new(&fabric, None);
    let flows = BTreeMap::from([((1, 3), 4000), ((2, 4), 8000), ((1, 2), 4000)]);
    let nodes: Vec<PlacedNode> = (1..=4).map(|lid| PlacedNode { name: lid.to_string(), lids: vec![lid] }).collect();
    let after = |passes, finder: &mut RouteFinder<'_>| {
        let placement = improve(&nodes, &flows, finder, passes).expect("known");
        (placement.after_hop_bytes, placement.is_unfinished)
    };
    assert_eq!(after(1, &mut finder), (40_000, true));
    assert_eq!(after(MAX_PASSES, &mut finder), (40_000, false));
}

#[test]
fn contradicting_lines_are_no_fabric() {
    let of = |text: &str| FabricGraph::of(&ibnetdiscover::parse_ports(text).expect("text")).err();
    let first = "CA 1 1 0x5 4x HDR - SW 9 1 0xa ( 'h' - 'l' )\n";
    assert_eq!(
        of(&format!("{first}CA 2 1 0x6 4x HDR - SW 9 1 0xa ( 'i' - 'l' )\n")),
        Some(FabricListError::TwoCables { guid: 0xa, number: 1 })
    );
    assert_eq!(
        of(&format!("{first}CA 1 1 0x6 4x HDR - SW 9 2 0xa ( 'i' - 'l' )\n")),
        Some(FabricListError::TwoPorts(1))
    );
    assert_eq!(of("SW 9 1 0xa 4x HDR 'l'\n"), Some(FabricListError::Empty));
    // Both ends of one cable, and the same line twice.
    assert_eq!(of(&format!("{first}{first}SW 9 1 0xa 4x HDR - CA 1 1 0x5 ( 'l' - 'h' )\n")), None);
}
