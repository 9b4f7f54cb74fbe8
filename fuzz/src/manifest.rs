//! Target `manifest`: the bytes are the manifest of a run, and the responses of its nodes to
//! requests for the time.

use crate::scratch;
use arbitrary::Unstructured;
use ibscope_orchestrator::manifest::{CaptureClock, ClockExchange, Manifest};

/// Parses the manifest and writes it again as JSON.
///
/// # Panics
/// If the written manifest does not parse as the same one.
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
        answers.push(ClockExchange { asked_ns, said_ns, answered_ns });
    }
    let (before, after) = answers.split_at(answers.len() / 2);
    let _ = CaptureClock::from_exchanges(before, after);
}
