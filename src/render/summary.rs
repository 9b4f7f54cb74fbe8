//! The facts of a summary for programs: csv and JSON. For people it is [`super::text::summary`].

use crate::analysis::health;
use crate::analysis::rates::{DEFAULT_WINDOW_NS, VALUES, rates};
use crate::analysis::totals::Totals;
use crate::model::Profile;
use crate::model::profile::Traffic;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Names and values, in the order of the csv.
fn facts(profile: &Profile) -> Vec<(String, Value)> {
    let coverage = &profile.coverage;
    let totals = Totals::of(profile);
    let Totals { traffic, repeats, endpoints, stacks, .. } = &totals;
    let ranks: BTreeSet<(u32, u32)> = profile.ranks.iter().map(|row| (row.job, row.rank)).collect();
    let mpi = |of: fn(&Traffic) -> u64| json!(totals.mpi(of));
    let mut facts: Vec<(String, Value)> = [
        ("inputs", json!(profile.inputs.len())),
        ("first_time_ns", json!(coverage.first_time_ns)),
        ("last_time_ns", json!(coverage.last_time_ns)),
        ("records", json!(coverage.records)),
        ("infiniband", json!(coverage.infiniband)),
        ("other_frames", json!(coverage.other())),
        ("not_decoded", json!(coverage.failed())),
        ("decoded_percent", json!(coverage.decoded_percent())),
        ("cut_short", json!(coverage.truncated)),
        ("icrc_bad", json!(coverage.icrc_bad)),
        ("vcrc_bad", json!(coverage.vcrc_bad)),
        ("interface_drops", json!(coverage.interface_drops)),
        ("mirror_copies", json!(coverage.mirror_copies)),
        ("endpoints", json!(endpoints.len())),
        ("ranks", json!(ranks.len())),
        ("stacks", json!(stacks.iter().copied().collect::<Vec<_>>().join("; "))),
        ("packets", json!(traffic.packets)),
        ("wire_bytes", json!(traffic.wire_bytes)),
        ("payload_bytes", json!(traffic.payload_bytes)),
        ("messages", json!(traffic.messages)),
        ("p2p_messages", mpi(|sums| sums.p2p_messages)),
        ("p2p_mpi_bytes", mpi(|sums| sums.p2p_mpi_bytes)),
        ("collective_messages", mpi(|sums| sums.collective_messages)),
        ("collective_mpi_bytes", mpi(|sums| sums.collective_mpi_bytes)),
        ("repeated_packets", json!(repeats.packets())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let rates = rates(profile, None, None, DEFAULT_WINDOW_NS).ok();
    for (index, name) in VALUES.into_iter().enumerate() {
        let known = rates.as_ref().filter(|rates| rates.total.known(index, 0).is_some());
        let mean = known.map(|rates| rates.mean(rates.total.sums[index]));
        let peak = known.map(|rates| rates.peak(rates.total.peaks[index]));
        facts.push((format!("{name}_per_s_mean"), json!(mean)));
        facts.push((format!("{name}_per_s_peak"), json!(peak)));
    }
    facts.push(("peak_window_ns".to_owned(), json!(rates.map(|rates| rates.window_ns))));
    facts.extend(health::total(profile).into_iter().map(|(name, value)| (name.to_owned(), json!(value))));
    facts
}

/// `name,value`, a row for each. Times and rates that are not known are empty.
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "name,value")?;
    for (name, value) in facts(profile) {
        match value {
            Value::Null => writeln!(out, "{name},")?,
            // Names of libraries have no commas and no quotes.
            Value::String(text) => writeln!(out, "{name},{text}")?,
            value => writeln!(out, "{name},{value}")?,
        }
    }
    Ok(())
}

/// One object with the same, the inputs, the ranks and the notes.
pub fn json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let facts: Map<String, Value> = facts(profile).into_iter().collect();
    let document = json!({
        "schema": "ibscope summary",
        "version": 1,
        "facts": facts,
        "inputs": profile.inputs,
        "coverage": profile.coverage,
        "ranks": profile.ranks,
        "notes": profile.notes,
    });
    writeln!(out, "{document:#}")
}
