//! Nodes that cannot be used, and names that must not reach a command.

use crate::lab::{FabricLab, bad, discover, discover_with_sinks, fault, good};
use crate::plain;
use ibscope_orchestrator::fabric::FabricError;

#[test]
fn nodes_without_a_port_are_named() {
    let mut lab = FabricLab::new();
    let down = recorded!("ibstat_down");
    let physical = down.lines().find_map(|line| line.trim().strip_prefix("Physical state: ")).unwrap();
    lab.ibstat.insert("n004".to_owned(), good(down.as_str()));
    lab.ibstat.insert("n005".to_owned(), good(""));
    assert_eq!(
        fault(&lab, &["n003", "n004"]),
        format!(
            "n004: no InfiniBand port is active (ibsim0 port 1: Down ({physical}), though it still shows a LID); check the cable and the \
             subnet manager, or exclude the node from the job"
        )
    );
    let message = fault(&lab, &["n005", "n003", "n004"]);
    assert!(message.starts_with("n005: no InfiniBand port is active (ibstat lists none); check"), "{message}");
    assert!(message.ends_with(" (also failed: n004)"), "{message}");
    for state in ["Initializing", "Armed", "???"] {
        lab.edit("n004", "State: Active", &format!("State: {state}"));
        assert!(matches!(discover(&lab, &["n004"]), Err(FabricError::NoPort { node, .. }) if node == "n004"));
    }
    lab.edit("n004", "Base lid: 9", "Base lid: 0");
    assert!(fault(&lab, &["n004"]).contains("active without a LID or GUID"));
}

#[test]
fn nodes_that_do_not_answer_are_named() {
    let mut lab = FabricLab::new();
    let message = fault(&lab, &["n003", "gone", "away"]);
    assert!(message.starts_with("gone: no connection to gone:22: No route to host; check that"), "{message}");
    assert!(message.ends_with(" (also failed: away)"), "{message}");
    let failed = bad("", "ibpanic: [5] main: can't list IB device names: No such file or directory\n\x1b[31m");
    lab.ibstat.insert("n004".to_owned(), failed);
    let message = fault(&lab, &["n004"]);
    let expected = "n004: /usr/sbin/ibstat failed: main: can't list IB device names: No such file or directory";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("check tools.ibstat") && !message.contains('\x1b'), "{message}");
    lab.edit("n004", "LMC: 0", "LMC: many");
    let message = fault(&lab, &["n004"]);
    assert!(message.starts_with("n004: output of ibstat, line 13: an LMC expected at byte "), "{message}");
    assert!(matches!(discover(&lab, &[]), Err(FabricError::NoNodes)));
}

#[test]
fn sinks_with_faults_are_skipped() {
    let sweep = recorded!("ibnetdiscover_p");
    let without_n006 = sweep.split_inclusive('\n').filter(|line| !line.contains("0x1070fd0300000061")).collect();
    let mut lab = FabricLab::with_sweep(without_n006);
    lab.trace("n006", bad("", ""));
    lab.ibstat.insert("n004".to_owned(), good(recorded!("ibstat_down")));
    lab.edit("n005", "LMC: 0", "LMC: many");
    lab.ibstat.insert("n007".to_owned(), lab.ibstat["n002"].clone());
    let sinks = ["n003", "n004", "n005", "n006", "n007", "gone"];
    let (fabric, faults) = discover_with_sinks(&lab, &["n001", "n002"], &sinks).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n001", "n002", "n003"]));
    assert_eq!(lab.asked("ibstat").len(), 8, "each node is asked once");
    let expected = [
        "n004: no InfiniBand port is active (ibsim0 port 1: Down (",
        "n005: output of ibstat, line 13: an LMC expected",
        "gone: no connection to gone:22: No route to host",
        "n002 and n007 show the same port",
        "n006: the leaf switch is unknown: ibsim0 port 1: ",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, start) in faults.iter().zip(expected) {
        assert!(fault.starts_with(start), "{start} is not the start of {fault}");
    }
    assert!(faults[0].ends_with("; check the cable and the subnet manager, or remove the node from sinks.nodes"));

    // A fault of a node ends the discovery, also if the node is a reserved sink too.
    for sinks in [&["n005"][..], &["n004", "n005"]] {
        let error = discover_with_sinks(&lab, &["n004", "n002"], sinks).unwrap_err().to_string();
        assert!(error.starts_with("n004: no InfiniBand port is active"), "{error}");
        assert!(error.ends_with("or exclude the node from the job"), "{error}");
    }
}

#[test]
fn two_names_of_one_machine_are_refused() {
    let mut lab = FabricLab::new();
    lab.ibstat.insert("n004".to_owned(), lab.ibstat["n003"].clone());
    let expected =
        "n003 and n004 show the same port 0x1070fd0300000031: two names lead to one machine; check the addresses";
    assert!(fault(&lab, &["n003", "n004"]).starts_with(expected));
}

#[test]
fn hostile_names_reach_no_command() {
    for name in ["-x", "a b", "$(reboot)", "a;b", "../a", "", "\u{1b}[2J"] {
        let mut lab = FabricLab::new();
        let text = lab.host("n003").ibstat();
        let device = text.replace("ibsim0", name).replace("00000031", "00000099");
        lab.ibstat.insert("n003".to_owned(), good(text + &device));
        let fabric = discover(&lab, &["n003"]).unwrap();
        assert_eq!(fabric.ports, lab.ports(&["n003"]), "{name}");
        assert_eq!(fabric.left_out.len(), 1);
        assert!(
            fabric.left_out[0].ends_with("port 1 of n003 is skipped: its name is not a valid device name"),
            "{fabric:?}"
        );
        assert!(!fabric.left_out[0].contains('\u{1b}'));
        let calls = lab.asked("").join("\n");
        assert_eq!(calls, "here: ibnetdiscover -p\nn003: ibstat\nn003: ibtracert -C ibsim0 -P 1 8 1");
    }
}
