//! Which ports of a node are used: several adapters, rails, LIDs, link layers.

use crate::lab::{FabricLab, MIRRORED, NOT_MIRRORED, bad, cable, config, discover, discover_with, good, only};
use crate::plain;
use ibscope_orchestrator::fabric::NodePort;

/// LID and GUID of the active ports of `ibstat_rails`.
const RAILS: [(u16, u64); 3] =
    [(1031, 0xb8ce_f603_00a1_b2c0), (49151, 0xb8ce_f603_00a1_b2c5), (7, 0x0002_c903_0031_fdc1)];

#[test]
fn several_adapters_and_ports() {
    // n004 has the same ports with other GUIDs.
    let other = |guid: u64| guid ^ 0x0000_0001_0000_0000;
    let guids = RAILS.iter().copied().chain(RAILS.iter().map(|&(lid, guid)| (lid, other(guid))));
    let sweep = guids.zip(1..).map(|((lid, guid), port)| cable(lid, guid, u64::from(port % 3), port)).collect();
    let mut lab = FabricLab::with_rails(FabricLab::with_sweep(sweep).sweeps);
    let mut text = recorded!("ibstat_rails");
    for (_, guid) in RAILS {
        text = text.replace(&format!("Port GUID: {guid:#018x}"), &format!("Port GUID: {:#018x}", other(guid)));
    }
    lab.ibstat.insert("n004".to_owned(), good(text));
    let fabric = discover_with(&config("check_nodes = 0", MIRRORED), &lab, &["n003", "n004"]).unwrap();
    let found: Vec<_> = fabric
        .ports
        .iter()
        .map(|port| {
            (port.node.as_str(), port.ca.as_str(), port.lid, port.lmc, port.rate_gbits, port.leaf_guid, port.leaf_port)
        })
        .collect();
    let expected = [
        ("n003", "mlx5_0", 1031, 0, 200.0, 1, 1),
        ("n003", "mlx5_1", 49151, 3, 400.0, 2, 2),
        ("n003", "mlx4_0", 7, 1, 40.0, 0, 3),
        ("n004", "mlx5_0", 1031, 0, 200.0, 1, 4),
        ("n004", "mlx5_1", 49151, 3, 400.0, 2, 5),
        ("n004", "mlx4_0", 7, 1, 40.0, 0, 6),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        fabric.left_out,
        [
            "mlx5_bond_0 port 1 of n003, n004 is skipped: Ethernet",
            "mlx4_0 port 2 of n003, n004 is skipped: Initializing (LinkUp), though it still shows a LID",
        ]
    );
    assert_eq!(fabric.disagreements, Vec::<String>::new());
}

#[test]
fn rails_in_separate_subnets() {
    let [a, b, c] = RAILS;
    let sweeps = vec![
        (None, Some("mlx5_1"), good(cable(b.0, b.1, 1, 5))),
        (None, Some("mlx4_0"), good(cable(c.0, c.1, 1, 6))),
        (None, None, good(cable(a.0, a.1, 1, 4))),
    ];
    let lab = FabricLab::with_rails(sweeps);
    let fabric = discover_with(&config("check_nodes = 0", MIRRORED), &lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports.iter().map(|port| port.leaf_port).collect::<Vec<_>>(), [4, 5, 6]);
    let sweeps =
        ["here: ibnetdiscover -p", "n003: ibnetdiscover -C mlx4_0 -P 1 -p", "n003: ibnetdiscover -C mlx5_1 -P 1 -p"];
    assert_eq!(lab.asked("ibnetdiscover"), sweeps);
}

#[test]
fn a_rail_without_a_switch_is_skipped() {
    let [a, b, c] = RAILS;
    let to_ca = cable(b.0, b.1, 7, 1).replace("- SW", "- CA");
    let sweep = cable(a.0, a.1, 1, 4) + &to_ca + &format!("CA {} 1 {:#018x} 4x HDR 'x'\n", c.0, c.1);
    let mut lab = FabricLab::with_rails(FabricLab::with_sweep(sweep).sweeps);
    lab.trace("n003", bad("", "ibwarn: [1] get_route: no way\n"));
    let fabric = discover(&lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports.iter().map(|port| (port.ca.as_str(), port.leaf_port)).collect::<Vec<_>>(), [("mlx5_0", 4)]);
    assert_eq!(
        fabric.left_out[2..],
        [
            "n003 mlx5_1 port 1 is skipped: ibnetdiscover shows no switch at the other end of the cable, and ibtracert failed: get_route: no way",
            "n003 mlx4_0 port 1 is skipped: ibnetdiscover shows nothing at the other end of the cable, and ibtracert failed: get_route: no way",
        ]
    );
}

#[test]
fn lid_mask_control() {
    let mut lab = FabricLab::with_sweep(recorded!("ibnetdiscover_p_lmc2"));
    lab.ibstat.insert("n003".to_owned(), good(recorded!("ibstat_lmc2")));
    lab.trace("n003", good(recorded!("ibtracert_lmc2")));
    let expected = only(vec![NodePort { lid: 24, lmc: 2, leaf_lid: 8, ..lab.host("n003").port() }]);
    assert_eq!(discover(&lab, &["n003"]).unwrap(), expected);
    assert_eq!(lab.asked("ibtracert"), ["n003: ibtracert -C ibsim0 -P 1 24 4"]);
    // If the subnet manager's LID is another LID of the port, the port itself runs it.
    let text = recorded!("ibstat_lmc2").replace("SM lid: 4", "SM lid: 27");
    lab.ibstat.insert("n003".to_owned(), good(text));
    lab.trace("n003", good(recorded!("ibtracert_to_leaf")));
    assert_eq!(discover(&lab, &["n003"]).unwrap(), expected);
    assert_eq!(lab.asked("ibtracert"), ["n003: ibtracert -C ibsim0 -P 1 24 8"]);
}

#[test]
fn ethernet_ports_are_captured_at_the_node_only() {
    let mut lab = FabricLab { sweeps: Vec::new(), ..FabricLab::new() };
    lab.edit("n003", "Link layer: IB", "Link layer: Ethernet");
    let roce = config("", "[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"tcpdump\"\n");
    let unknown = NodePort { leaf_guid: 0, leaf_lid: 0, leaf_port: 0, ..lab.host("n003").port() };
    assert_eq!(discover_with(&roce, &lab, &["n003"]).unwrap(), only(vec![unknown]));
    assert!(lab.asked("ibtracert").is_empty());
    let message = discover_with(&config("", NOT_MIRRORED), &lab, &["n003"]).unwrap_err().to_string();
    assert!(message.starts_with("n003: no InfiniBand port is active (ibsim0 port 1: Ethernet); check"), "{message}");
}
