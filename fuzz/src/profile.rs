//! Target `profile`: the bytes are changes of a profile's files, with matching digests.

use crate::{render, sample_profiles, scratch};
use arbitrary::Unstructured;
use ibscope::pipeline;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Once};
use xxhash_rust::xxh3::xxh3_128;

const DOCUMENT: &str = "profile.json";

/// The files of the sample profile, the document first.
static FILES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let place = sample_profiles::write_profile("base.ibp", sample_profiles::profile());
    let mut files: Vec<_> =
        fs::read_dir(&place).expect("a profile").map(|entry| file(&entry.expect("file").path())).collect();
    files.sort_by_key(|(name, _)| (name != DOCUMENT, name.clone()));
    files
});

/// libFuzzer stops at any panic, but the program catches those of polars.
static HOOK: Once = Once::new();

fn let_polars_panic() {
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic.location().is_some_and(|place| place.file().contains("polars")) {
                usual(panic);
            }
        }));
    });
}

fn file(path: &Path) -> (String, Vec<u8>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (name, fs::read(path).expect("a file of a profile"))
}

/// The first byte selects a file, the rest are changes of it; or the rest are the text of the
/// document.
///
/// # Panics
/// If a profile that can be read cannot be written and read again.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(which) = input.arbitrary::<u8>() else { return };
    let_polars_panic();
    let files = &*FILES;
    let chosen = usize::from(which) % (files.len() + 1);
    let place = if let Some((name, whole)) = files.get(chosen) {
        write_changed(name, &edited(whole, &mut input))
    } else {
        write_changed(DOCUMENT, input.take_rest())
    };
    let _ =
        pipeline::merge(std::slice::from_ref(&place), &pipeline::AnalysisOptions { threads: 1, ..Default::default() });
    let Ok(profile) = pipeline::load(&place) else { return };
    render::all(&profile, false);
    let again = sample_profiles::write_profile("again.ibp", &profile);
    pipeline::load(&again).expect("what was read is written and read again");
}

/// The sample profile with one file replaced, and a matching digest.
fn write_changed(name: &str, bytes: &[u8]) -> PathBuf {
    let place = scratch::path("changed.ibp");
    fs::create_dir_all(&place).expect("room for a profile");
    for (own, whole) in &*FILES {
        let bytes = if own == name { bytes } else { whole };
        fs::write(place.join(own), bytes).expect("room for a file");
    }
    if name != DOCUMENT {
        let mut document: serde_json::Value = serde_json::from_slice(&FILES[0].1).expect("the document");
        let digest = format!("{:032x}", xxh3_128(bytes));
        document["tables"][name] = serde_json::json!({ "length_bytes": bytes.len(), "xxh3_128": digest });
        fs::write(place.join(DOCUMENT), document.to_string()).expect("room for a file");
    }
    place
}

/// Applies changes of a few bytes each: position, operation and value.
pub(crate) fn edited(whole: &[u8], input: &mut Unstructured<'_>) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    while let Ok([high, low, what, value]) = input.arbitrary::<[u8; 4]>() {
        if bytes.is_empty() || input.is_empty() && [high, low, what, value] == [0; 4] {
            break;
        }
        let at = usize::from(u16::from_be_bytes([high, low])) * bytes.len() / 0x1_0000;
        match what & 7 {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + usize::from(value)).min(bytes.len()))),
            2 => bytes.insert(at, value),
            3 => bytes[at] = bytes[at].wrapping_add(value),
            4 => bytes[at] ^= 1 << (value & 7),
            // Sets up to eight bytes to 0xFF, which makes large numbers.
            5 => bytes.iter_mut().skip(at).take(usize::from(value & 7) + 1).for_each(|byte| *byte = 0xFF),
            _ => bytes[at] = value,
        }
    }
    bytes
}
