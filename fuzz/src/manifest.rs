//! Bytes as the manifest of a run, and as the answers of its nodes to what time it is.

use crate::scratch;
use arbitrary::Unstructured;
use ibscope_orchestrator::manifest::{CaptureClock, Exchange, Manifest};

/// Read, and written again as JSON.
///
/// # Panics
/// Where what was read does not come back.
pub fn run(bytes: &[u8]) {
    if let Ok(manifest) = scratch::file("manifest.json", bytes, Manifest::read) {
        let text = serde_json::to_vec(&manifest).expect("JSON");
        let again = scratch::file("manifest.json", &text, Manifest::read).expect("the same manifest");
        assert_eq!(serde_json::to_vec(&again).expect("JSON"), text);
    }
    let mut input = Unstructured::new(bytes);
    let mut answers = Vec::new();
    while answers.len() < 64 && !input.is_empty() {
        let Ok([asked_ns, said_ns, answered_ns]) = input.arbitrary::<[i64; 3]>() else { break };
        answers.push(Exchange { asked_ns, said_ns, answered_ns });
    }
    let (before, after) = answers.split_at(answers.len() / 2);
    let _ = CaptureClock::measured(before, after);
}
