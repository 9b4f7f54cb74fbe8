//! Discovery of the leaf from a sweep and from traces, and the warnings if they differ or one of
//! them fails.

use crate::lab::{
    FabricLab, HOST, LEAF, LabHost, MIRRORED, NOT_MIRRORED, bad, cable, config, discover, discover_with, fault, good,
    only,
};
use crate::plain;
use ibscope_orchestrator::fabric::NodePort;

#[test]
fn the_lab_prints_the_recorded_outputs() {
    let lab = FabricLab::new();
    let n003 = lab.host("n003");
    assert_eq!(n003.ibstat(), recorded!("ibstat_n003"));
    assert_eq!(n003.trace(20, &lab.hosts), recorded!("ibtracert_cross_leaf"));
    assert_eq!(n003.trace(1, &lab.hosts), recorded!("ibtracert_same_leaf"));
    assert_eq!(n003.trace(8, &lab.hosts), recorded!("ibtracert_self"));
    assert_eq!(lab.host("n001").trace(20, &lab.hosts), recorded!("ibtracert_third_party"));
    // This one was recorded with other LIDs.
    let to_leaf = recorded!("ibtracert_to_leaf").replace("lid 8-8", "lid 2-2").replace("lid 24-27", "lid 8-8");
    assert_eq!(n003.trace(2, &lab.hosts), to_leaf);
}

#[test]
fn nodes_are_found_where_the_topology_has_them() {
    let lab = FabricLab::new();
    let names = ["n003", "n001", "n007", "n015", "n008"];
    let fabric = discover(&lab, &names).unwrap();
    assert_eq!(fabric, only(lab.ports(&names)));
    // n003 by hand: LID 8, third port of the first leaf, whose LID is 2.
    let n003 = &fabric.ports[0];
    assert_eq!((n003.lid, n003.leaf_guid, n003.leaf_lid, n003.leaf_port), (8, 0xb859_9f03_0000_1000, 2, 3));
    assert_eq!(lab.asked("ibnetdiscover"), ["here: ibnetdiscover -p"]);
    assert_eq!(lab.asked("ibstat"), ["n001: ibstat", "n003: ibstat", "n007: ibstat", "n008: ibstat", "n015: ibstat"]);
    // To the subnet manager at LID 1; from the subnet manager's own node to its leaf.
    let traces = [
        "n001: ibtracert -C ibsim0 -P 1 1 2",
        "n003: ibtracert -C ibsim0 -P 1 8 1",
        "n007: ibtracert -C ibsim0 -P 1 12 1",
        "n008: ibtracert -C ibsim0 -P 1 13 1",
        "n015: ibtracert -C ibsim0 -P 1 20 1",
    ];
    assert_eq!(lab.asked("ibtracert"), traces);
}

#[test]
fn a_job_of_one_node() {
    for name in ["n001", "n009"] {
        let lab = FabricLab::new();
        assert_eq!(discover(&lab, &[name, name]).unwrap(), only(lab.ports(&[name])));
        assert_eq!(lab.asked("ibtracert").len(), 1);
    }
    // If no sweep is possible, the node of the subnet manager has no other LID to trace to.
    let lab = FabricLab { sweeps: Vec::new(), ..FabricLab::new() };
    assert_eq!(
        fault(&lab, &["n001"]),
        "n001: the leaf switch is unknown: ibsim0 port 1: ibnetdiscover reported no ports, and ibtracert failed: there is no other known LID \
         to which a route could be traced; run ibnetdiscover -p and ibtracert by hand, and check fabric.run_on in the configuration"
    );
    // With another node of the job, that node is traced to.
    assert_eq!(discover(&lab, &["n001", "n004"]).unwrap().ports, lab.ports(&["n001", "n004"]));
    assert_eq!(lab.asked("ibtracert")[0], "n001: ibtracert -C ibsim0 -P 1 1 9");
}

#[test]
fn only_the_first_nodes_are_traced() {
    let names: Vec<String> = (1..=15).map(|number| format!("n{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lab = FabricLab::new();
    let fabric = discover_with(&config("check_nodes = 2", MIRRORED), &lab, &names).unwrap();
    assert_eq!(fabric, only(lab.ports(&names)));
    assert_eq!(lab.asked("ibtracert").len(), 2);
    // A node that the sweep does not list is traced in any case.
    let sweep = recorded!("ibnetdiscover_p");
    let lab = FabricLab::with_sweep(
        sweep.split_inclusive('\n').filter(|line| !line.contains("0x1070fd0300000091")).collect(),
    );
    let fabric = discover_with(&config("check_nodes = 0", MIRRORED), &lab, &names).unwrap();
    assert_eq!(fabric.ports, lab.ports(&names));
    assert_eq!(lab.asked("ibtracert"), ["n009: ibtracert -C ibsim0 -P 1 14 1"]);
    let warning = "n009 ibsim0 port 1: ibnetdiscover does not list the port; using ibtracert alone: switch 0xb8599f0300001001 (LID 4) port 4";
    assert_eq!(fabric.disagreements, [warning]);
}

#[test]
fn disagreements_become_warnings() {
    let sweep = recorded!("ibnetdiscover_p")
        .replace("0x1070fd0300000031 4x HDR - SW     2  3 ", "0x1070fd0300000031 4x HDR - SW     2 30 ")
        .replace("CA     9  1 0x1070fd0300000041 4x", "CA    99  1 0x1070fd0300000041 4x");
    let lab = FabricLab::with_sweep(sweep);
    let fabric = discover(&lab, &["n002", "n003", "n004"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003", "n004"]));
    assert_eq!(
        fabric.disagreements,
        [
            "n003 ibsim0 port 1: ibnetdiscover reports switch 0xb8599f0300001000 (LID 2) port 30, ibtracert reports switch 0xb8599f0300001000 \
             (LID 2) port 3; using ibtracert. Check the cable, and plan again if it was moved",
            "n004 ibsim0 port 1: ibstat reports LID 9 and port 1, ibnetdiscover reports LID 99 and port 1; using ibstat",
        ]
    );
}

#[test]
fn a_sweep_that_fails_here_is_repeated_on_a_node() {
    let failed = bad(
        "ibnetdiscover: iberror: failed: discover failed\n",
        "ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)\n",
    );
    let mut lab = FabricLab::new();
    lab.sweeps.insert(0, (Some("here"), None, failed));
    let fabric = discover(&lab, &["n002", "n003"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003"]));
    assert_eq!(lab.asked("ibnetdiscover"), ["here: ibnetdiscover -p", "n002: ibnetdiscover -C ibsim0 -P 1 -p"]);
    assert_eq!(
        fabric.disagreements,
        [
            "ibnetdiscover -p failed here: mad_rpc_open_port: can't open UMAD port ((null):0); ibnetdiscover: iberror: failed: discover \
          failed; set fabric.run_on to a node that can run it"
        ]
    );
    // `fabric.run_on` sets where it runs.
    for (place, node) in [("first", "n002"), ("n014", "n014")] {
        let config = config(&format!("run_on = \"{place}\""), MIRRORED);
        assert_eq!(discover_with(&config, &lab, &["n002", "n003"]).unwrap(), only(lab.ports(&["n002", "n003"])));
        assert_eq!(lab.asked("ibnetdiscover"), [format!("{node}: ibnetdiscover -p")]);
    }
}

#[test]
fn traces_alone_find_the_leaf() {
    let lab = FabricLab { sweeps: Vec::new(), ..FabricLab::new() };
    let fabric = discover_with(&config("check_nodes = 1", MIRRORED), &lab, &["n002", "n003", "n013"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003", "n013"]));
    assert_eq!(
        fabric.disagreements,
        [
            "ibnetdiscover -p failed here: no port; set fabric.run_on to a node that can run it",
            "ibnetdiscover -p failed from n002 ibsim0 port 1: no port",
        ]
    );
    // A trace that fails further on has already shown the leaf.
    let mut lab = FabricLab::new();
    let begun: String = lab.host("n003").trace(20, &lab.hosts).split_inclusive('\n').take(2).collect();
    lab.trace("n003", bad(&begun, "ibwarn: [9] find_route: can't reach port at DR path\n"));
    assert_eq!(discover(&lab, &["n003"]).unwrap(), only(lab.ports(&["n003"])));
}

#[test]
fn the_sweep_alone_finds_the_leaf() {
    let mut lab = FabricLab::new();
    let failed = bad(
        "ibtracert: iberror: failed: Failed to get route information\n",
        "ibwarn: [9] sim_connect: attached as client 0\nibwarn: [9] find_route: can't reach to/from ports\n",
    );
    lab.trace("n003", failed);
    let fabric = discover(&lab, &["n002", "n003"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003"]));
    assert_eq!(
        fabric.disagreements,
        [
            "n003 ibsim0 port 1: ibtracert does not report the leaf switch (find_route: can't reach to/from ports; ibtracert: iberror: failed: Failed \
          to get route information); using ibnetdiscover alone: switch 0xb8599f0300001000 (LID 2) port 3"
        ]
    );
}

#[test]
fn a_leaf_that_no_tool_shows_is_an_error() {
    let mut lab = FabricLab { sweeps: Vec::new(), ..FabricLab::new() };
    lab.trace("n003", bad("", ""));
    lab.trace("n004", bad("", ""));
    let message = fault(&lab, &["n002", "n003", "n004"]);
    assert!(message.starts_with("n003: the leaf switch is unknown: ibsim0 port 1: "), "{message}");
    assert!(message.contains("ibtracert failed: it ended with status 255"), "{message}");
    assert!(message.ends_with(" (also failed: n004)"), "{message}");
    // Without mirroring the leaf is not needed.
    let fabric = discover_with(&config("", NOT_MIRRORED), &lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports, [NodePort { leaf_guid: 0, leaf_lid: 0, leaf_port: 0, ..lab.host("n003").port() }]);
    let warning = fabric.disagreements.last().unwrap();
    assert!(warning.starts_with("n003 ibsim0 port 1: the leaf switch is unknown: "), "{warning}");
}

#[test]
fn a_trace_that_begins_at_another_node_is_not_used() {
    let mut lab = FabricLab::new();
    let elsewhere = lab.host("n007").trace(1, &lab.hosts);
    lab.trace("n003", good(elsewhere));
    let fabric = discover(&lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n003"]));
    assert_eq!(fabric.disagreements.len(), 1);
    assert!(fabric.disagreements[0].contains("LID 8 leads to node 0x1070fd0300000070, not to this one"), "{fabric:?}");
}

/// 2000 hosts on 100 leaves below 16 spines, with LIDs in no order. The result does not depend on
/// how many nodes are asked at the same time.
#[test]
fn a_large_fabric() {
    const LEAVES: u64 = 100;
    const HOSTS: u64 = 20;
    const SPINES: u64 = 16;
    let lid = |number: u64| (number * 7 % 40_000 + 1) as u16;
    let leaf_lid = |leaf: u64| (40_001 + leaf) as u16;
    let lines = |(leaf, port): (u64, u64)| {
        let near = format!("SW {:5} {port:2} {:#018x} 4x HDR", leaf_lid(leaf), LEAF + leaf);
        let number = leaf * HOSTS + port;
        let (lid, guid) = (lid(number), HOST + 16 * number + 1);
        if port <= HOSTS {
            let host = cable(lid, guid, LEAF + leaf, port as u8);
            let host = host.replace("SW     2", &format!("SW {:5}", leaf_lid(leaf)));
            return format!("{near} - CA {lid:5}  1 {guid:#018x} ( 'leaf' - 'n{number:05} mlx5_0' )\n{host}");
        }
        let (lid, spine, back) = (45_000 + port, LEAF + 0x1000 + port, leaf + 1);
        format!("{near} - SW {lid:5} {back:2} {spine:#018x} ( 'leaf' - 'spine' )\n")
    };
    let ports = (0..LEAVES).flat_map(|leaf| (1..=HOSTS + SPINES).map(move |port| (leaf, port)));
    let sweep = ports.map(lines).collect::<Vec<_>>().concat();
    let numbers = (0..256).map(|index| index * 7 % (LEAVES * HOSTS) + 1);
    let hosts: Vec<LabHost> = numbers
        .map(|number| LabHost { name: format!("n{number:05}"), number, lid: lid(number), leaf_lid: 0 })
        .collect();
    let ibstat = hosts.iter().map(|host| (host.name.clone(), good(host.ibstat()))).collect();
    let lab = FabricLab { ibstat, hosts, ..FabricLab::with_sweep(sweep) };
    let place = |host: &LabHost| {
        let (leaf, port) = ((host.number - 1) / HOSTS, (host.number - 1) % HOSTS + 1);
        NodePort { leaf_guid: LEAF + leaf, leaf_lid: leaf_lid(leaf), leaf_port: port as u8, ..host.port() }
    };
    let expected = only(lab.hosts.iter().map(place).collect());
    let names: Vec<&str> = lab.hosts.iter().map(|host| host.name.as_str()).collect();
    for parallel in [1, 4, 32] {
        let mut config = config("check_nodes = 0", MIRRORED);
        config.ssh.parallel = parallel;
        assert_eq!(discover_with(&config, &lab, &names).unwrap(), expected);
    }
}
