//! Nodes whose ports are in the inventory: one `ibnetdiscover -p` locates them, unless it shows
//! something else than the inventory.

use crate::lab::{FabricLab, MIRRORED, config, discover_again, only};
use crate::plain;
use ibscope_orchestrator::fabric::Inventory;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn names() -> Vec<String> {
    (1..=15).map(|number| format!("n{number:03}")).collect()
}

#[test]
fn nodes_in_the_inventory_are_not_asked_again() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (lab, config, mut inventory) = (FabricLab::new(), config("check_nodes = 2", MIRRORED), Inventory::default());
    let first = discover_again(&config, &lab, &names, &mut inventory).unwrap();
    assert_eq!((&first, lab.asked("ibstat").len()), (&only(lab.ports(&names)), 15));
    let second = discover_again(&config, &lab, &names, &mut inventory).unwrap();
    assert_eq!(second, first);
    // The first two are asked and traced in any case.
    assert_eq!(lab.asked("ibstat"), ["n001: ibstat", "n002: ibstat"]);
    assert_eq!(lab.asked("ibnetdiscover").len(), 2, "one each time");
}

#[test]
fn nodes_that_the_fabric_shows_differently_are_asked() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (config, mut inventory) = (config("check_nodes = 0", MIRRORED), Inventory::default());
    let lab = FabricLab::new();
    discover_again(&config, &lab, &names, &mut inventory).unwrap();
    let sweep = recorded!("ibnetdiscover_p");
    let asked = |sweep: String| {
        let lab = FabricLab::with_sweep(sweep);
        let fabric = discover_again(&config, &lab, &names, &mut inventory.clone()).unwrap();
        assert_eq!(fabric.ports, lab.ports(&names));
        lab.asked("ibstat")
    };
    assert_eq!(asked(sweep.clone()), [""; 0]);
    // Missing: n009, whose port the sweep does not list.
    let without = sweep.split_inclusive('\n').filter(|line| !line.contains("0x1070fd0300000091")).collect();
    assert_eq!(asked(without), ["n009: ibstat"]);
    // The adapter of n009 is in another node now, according to the node description.
    assert!(sweep.contains("'n009 "), "{sweep}");
    assert_eq!(asked(sweep.replace("'n009 ", "'n010 ")), ["n009: ibstat", "n010: ibstat"]);
    // A node description that names no node.
    assert_eq!(asked(sweep.replace("'n009 ", "'MT4123 ")), ["n009: ibstat"]);
    // One port more than the inventory has.
    let more = format!(
        "{sweep}CA    77  1 0x1070fd0300000ff1 4x HDR - SW     2 31 0xb8599f0300001000 ( 'n009 x' - 'leaf1' )\n"
    );
    assert_eq!(asked(more), ["n009: ibstat"]);
}

#[test]
fn the_inventory_is_stored_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Inventory::read(folder.path()), Inventory::default());
    let mut inventory = Inventory::default();
    discover_again(&config("", MIRRORED), &FabricLab::new(), &["n003", "n004"], &mut inventory).unwrap();
    inventory.write(folder.path()).unwrap();
    assert_eq!(Inventory::read(folder.path()), inventory);
    let file = folder.path().join("ports.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside it");
    // A damaged inventory only costs time.
    fs::write(&file, "{\"n003\": 5").unwrap();
    assert_eq!(Inventory::read(folder.path()), Inventory::default());
    assert!(inventory.write(&folder.path().join("missing")).is_err());
}
