//! The targets of `fuzz/` without the fuzzer: their corpora, and reproducible mutations of these.

use crate::tools::{in_parallel, random};
use ibscope_fuzz::{FuzzTarget, TARGETS};
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Maximum of all corpora in the repository, and of one input.
const MAX_BYTES: u64 = 1 << 20;
const MAX_INPUT_BYTES: u64 = 64 << 10;
/// Targets that run the whole program; mutations of each input for these and for the others.
const SLOW: [&str; 5] = ["profile", "parts", "pipeline", "capture", "merge"];
const CHANGES: [usize; 2] = [1, 20];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The inputs of a target, sorted by name.
fn corpus(name: &str) -> Vec<PathBuf> {
    let place = folder().join("corpus").join(name);
    let entries = fs::read_dir(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{name}");
    inputs
}

/// An input with some bytes replaced, removed, duplicated, or inserted from another input.
fn changed(bytes: &[u8], other: &[u8], mut random: impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random(4) {
        let at = random(bytes.len() + 1);
        let end = (at + random(16)).min(bytes.len());
        match random(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
            3 => {
                let from = random(other.len() + 1);
                let to = (from + random(64)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied()).for_each(drop);
            }
            4 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = [0, 0x7F, 0x80, 0xFF][random(4)]),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random(8)),
        }
    }
    bytes
}

/// Runs a target on an input and its mutations.
fn run_target((name, target): &FuzzTarget, input: &Path, other: &Path) {
    let whole = fs::read(input).expect("input");
    let other = fs::read(other).expect("input");
    let changes = CHANGES[usize::from(!SLOW.contains(name))];
    let mut random = random(whole.iter().fold(whole.len() as u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte)));
    let changes = (0..changes).map(|_| changed(&whole, &other, &mut random));
    for (number, bytes) in std::iter::once(whole.clone()).chain(changes).enumerate() {
        if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
            let place = std::env::temp_dir().join(format!("ibscope-fuzz-{name}"));
            let kept = fs::write(&place, &bytes).map(|()| place.display().to_string());
            panic!("{name}: change {number} of {}: {kept:?} fails", input.display());
        }
    }
}

#[test]
fn every_target_holds_on_its_corpus_and_its_mutations() {
    let inputs: Vec<(FuzzTarget, PathBuf, PathBuf)> = TARGETS
        .into_iter()
        .flat_map(|target| {
            let inputs = corpus(target.0);
            let others = inputs.clone().into_iter().cycle().skip(1);
            inputs.into_iter().zip(others).map(move |(input, other)| (target, input, other)).collect::<Vec<_>>()
        })
        .collect();
    in_parallel(&inputs, |_, (target, input, other)| run_target(target, input, other));
}

/// Every target has a corpus and a program for the fuzzer, and the reverse; corpora stay small.
#[test]
fn targets_corpora_and_programs_match() {
    let names = |folder: PathBuf| -> BTreeSet<String> {
        let name = |path: PathBuf| path.file_stem().expect("name").to_string_lossy().into_owned();
        fs::read_dir(folder).expect("folder").map(|entry| name(entry.expect("entry").path())).collect()
    };
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len());
    assert_eq!(names(folder().join("corpus")), targets);
    assert_eq!(names(folder().join("fuzz_targets")), targets);
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("Cargo.toml");
    for name in &targets {
        let program = format!("name = \"fuzz-{name}\"\npath = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&program), "{name}");
        let text = fs::read_to_string(folder().join("fuzz_targets").join(format!("{name}.rs"))).expect("program");
        assert!(text.contains(&format!("ibscope_fuzz::{name}::run")), "{name}");
    }
    let lengths: Vec<u64> = TARGETS
        .iter()
        .flat_map(|(name, _)| corpus(name))
        .map(|input| fs::metadata(input).expect("input").len())
        .collect();
    assert!(lengths.iter().all(|length| *length <= MAX_INPUT_BYTES), "{:?}", lengths.iter().max());
    assert!(lengths.iter().sum::<u64>() <= MAX_BYTES, "{}", lengths.iter().sum::<u64>());
}
