//! The collective operations of captures, one by one, for the lanes of the page.
//!
//! In: the operations, or nothing for a profile, which has none. Out: for the first of them, the
//! times of the packets of each rank, and how many are left out.

use crate::analysis::collective_instances::{CollectiveInstance, Confidence};
use crate::analysis::instances::InstanceList;
use crate::model::{JobRank, Profile};
use crate::render::collective_instances::{algorithm, notes};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Limit of the operations in a page: the first ones.
const MAX_OPERATIONS: usize = 2000;
/// Limit of the ranks that have a lane.
const MAX_LANES: usize = 64;
/// Limit of the bars: one for each rank of an operation.
const MAX_BARS: usize = 8000;

/// The lanes. `origin_ns` is the time from which the page counts.
pub(super) fn document(found: Option<&InstanceList>, profile: &Profile, origin_ns: i64) -> Value {
    let Some(found) = found else {
        return json!({
            "because": "A profile does not hold individual operations. To see each operation here, make the report from the captures: ibscope report CAPTURE... -o report.html",
        });
    };
    if let Some(reason) = found.unknown_because {
        return json!({ "because": format!("Individual operations are unknown, because {reason}.") });
    }
    let all: BTreeSet<JobRank> = found
        .instances
        .iter()
        .flat_map(|own| own.activity.iter().map(|rank| JobRank { job: own.job, rank: rank.rank }))
        .collect();
    let lanes: Vec<JobRank> = all.iter().copied().take(MAX_LANES).collect();
    let mut operations = Vec::new();
    let mut bars = 0;
    for own in &found.instances {
        bars += own.activity.len().min(MAX_LANES);
        if operations.len() == MAX_OPERATIONS || bars > MAX_BARS {
            break;
        }
        operations.push(operation(own, &lanes, origin_ns));
    }
    let name = |rank: &JobRank| {
        if profile.jobs.len() > 1 { format!("{}.{}", rank.job, rank.rank) } else { rank.rank.to_string() }
    };
    json!({
        "because": null,
        "ranks": lanes.iter().map(name).collect::<Vec<_>>(),
        "ranks_left_out": all.len() - lanes.len(),
        "left_out": found.instances.len() - operations.len(),
        "operations": operations,
        "notes": notes(found),
    })
}

/// An operation with the bars of its ranks: number of the lane, and the times of the first and the
/// last packet of the rank.
fn operation(own: &CollectiveInstance, lanes: &[JobRank], origin_ns: i64) -> Value {
    let bar = |rank: &crate::model::RankActivity| {
        let lane = lanes.binary_search(&JobRank { job: own.job, rank: rank.rank }).ok()?;
        Some((lane, rank.start_ns.saturating_sub(origin_ns), rank.end_ns.saturating_sub(origin_ns)))
    };
    json!({
        "name": own.operation.name(),
        "communicator": own.communicator,
        "number": own.number,
        "algorithm": algorithm(own),
        "confidence": own.confidence.name(),
        "is_certain": own.confidence > Confidence::Low,
        "ranks": own.ranks,
        "bytes": own.bytes,
        "start_ns": own.start_ns.saturating_sub(origin_ns),
        "duration_ns": own.duration_ns(),
        "last_rank": own.last_rank,
        "skew_ns": own.skew_ns,
        "bars": own.activity.iter().filter_map(bar).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RankActivity;
    use ibscope_parsers::mpi::MpiOperation;

    fn list(operations: usize, ranks: u32) -> InstanceList {
        let activity = |rank: u32| RankActivity {
            rank,
            start_ns: 105,
            end_ns: 110,
            first_send_ns: Some(105),
            last_receive_ns: Some(110),
        };
        let own = CollectiveInstance {
            job: 1,
            is_nccl: false,
            communicator: "world".to_owned(),
            number: 1,
            operation: MpiOperation::Barrier,
            algorithms: Vec::new(),
            confidence: Confidence::Unknown,
            misses_messages: false,
            ranks: Some(ranks),
            bytes: None,
            start_ns: 105,
            end_ns: 110,
            last_rank: None,
            skew_ns: None,
            activity: (0..ranks).map(activity).collect(),
        };
        InstanceList { instances: vec![own; operations], ..InstanceList::default() }
    }

    #[test]
    fn the_first_operations_and_ranks_are_shown_and_the_others_are_counted() {
        let of = |operations, ranks| document(Some(&list(operations, ranks)), &Profile::default(), 100);
        let shown = |document: &Value| document["operations"].as_array().expect("operations").len();
        let few = of(3, 2);
        assert_eq!((shown(&few), &few["left_out"], &few["ranks_left_out"]), (3, &json!(0), &json!(0)));
        assert_eq!(few["operations"][0]["bars"], json!([[0, 5, 10], [1, 5, 10]]));
        for (more, left_out) in [(0, 0), (1, 1)] {
            let many = of(MAX_OPERATIONS + more, 2);
            assert_eq!((shown(&many), &many["left_out"]), (MAX_OPERATIONS, &json!(left_out)));
        }
        let wide = of(200, MAX_LANES as u32 + 3);
        assert_eq!((shown(&wide), &wide["ranks_left_out"]), (MAX_BARS / MAX_LANES, &json!(3)));
        assert_eq!(wide["operations"][0]["bars"].as_array().expect("bars").len(), MAX_LANES);
    }

    #[test]
    fn without_operations_there_is_a_reason() {
        let because = |found| document(found, &Profile::default(), 0)["because"].as_str().map(str::to_owned);
        assert!(because(None).expect("reason").contains("ibscope report CAPTURE"));
        let sampled = InstanceList { unknown_because: Some("the mirror sampled"), ..InstanceList::default() };
        assert_eq!(
            because(Some(&sampled)).as_deref(),
            Some("Individual operations are unknown, because the mirror sampled.")
        );
        assert_eq!(because(Some(&InstanceList::default())), None);
    }
}
