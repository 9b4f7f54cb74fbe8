//! Notes on numbers that the captures do not show, or show only in part: what happened, what it means
//! for the numbers, and the next step.
//!
//! In: the inputs and their combined sums. Out: one sentence for each note. `left_out` has the notes on
//! data beyond the bounds, and `align` those on clocks.

use super::AnalysisOptions;
use crate::model::profile::Input;
use crate::model::{Coverage, count_either, show};
use crate::reduce::{CombinedTotals, UntimedMessages};

/// The notes on the times of an input.
pub(super) fn of_input(input: &Input) -> impl Iterator<Item = String> + use<> {
    [without_time(input), out_of_order(input)].into_iter().flatten()
}

/// The note on an input with records whose time is unknown.
fn without_time(input: &Input) -> Option<String> {
    let Coverage { records, without_time, .. } = input.coverage;
    (without_time > 0).then(|| {
        format!(
            "{}: {without_time} of {records} records have no timestamp, or one with a fraction of more than a second: they \
             count in the matrix, and have no times; if the file has nanoseconds, but the magic number of microseconds, \
             set its first four bytes to that of nanoseconds (a1b23c4d)",
            input.name
        )
    })
}

/// The note on an input whose records are not in the order of capture.
fn out_of_order(input: &Input) -> Option<String> {
    let Coverage { records, time_backwards, .. } = input.coverage;
    input.coverage.is_out_of_order().then(|| {
        format!(
            "{}: {time_backwards} of {records} records are earlier than the record before, by up to {}: they are not in \
             the order of capture, so packets may look lost, late or retransmitted, and latencies are wrong; sort them \
             with `reordercap`",
            input.name,
            input.coverage.longest_backwards()
        )
    })
}

/// The notes on all inputs together. `untimed` are the messages that two inputs observed and that have no
/// usable transfer time.
pub(super) fn of_all(combined: &CombinedTotals, untimed: UntimedMessages, options: &AnalysisOptions) -> Vec<String> {
    let mut notes = Vec::new();
    if !options.measures.payload {
        notes.push(
            "--no-payload: the payload was not read, so there are no MPI messages, ranks or connection messages"
                .to_owned(),
        );
    }
    if combined.continued > 0 {
        notes.push(format!(
            "{} from one input to the next: a message across the end of a file is incomplete, and a \
             retransmission in the next file counts as a new packet",
            count_either(combined.continued, "connection continues", "connections continue")
        ));
    }
    if combined.left_out > 0 {
        notes.push(format!(
            "the inputs overlap only in part: {} counted from the input that holds most of their packets; packets \
             that only another input holds are not counted",
            count_either(combined.left_out, "connection is", "connections are")
        ));
    }
    if combined.without_union > 0 {
        notes.push(format!(
            "{} different packets in several inputs and counted from the input that holds most of them, not from the union: \
             partial profiles and pipes cannot be read again; analyze all captures as files in one run",
            count_either(combined.without_union, "connection has", "connections have")
        ));
    }
    if !combined.late_copies.is_empty() && options.measures.mpi && options.measures.times {
        let delay_ns = combined.late_copies.iter().filter_map(|late| late.delay_ns).max();
        let delay = delay_ns.map_or_else(String::new, |ns| format!(", by {}", show::duration(rounded(ns))));
        notes.push(format!(
            "{} no transit, response and arrival times: requests were observed at the second port after their ACKs, so \
             the clocks of the two ports differ{delay}, or a device delays the copies, and times at different ports may be \
             wrong by as much; capture each port in a file of its own",
            count_either(combined.late_copies.len() as u64, "connection has", "connections have")
        ));
    }
    let untimed = untimed.unclear + untimed.backwards;
    if untimed > 0 {
        notes.push(format!(
            "{} no transfer time: it is shorter than the error of the inputs' clocks",
            count_either(
                untimed,
                "MPI message that two inputs observed has",
                "MPI messages that two inputs observed have"
            )
        ));
    }
    notes
}

/// A duration in nanoseconds, rounded to three digits.
const fn rounded(ns: u64) -> i64 {
    let mut step = 1;
    while ns / step >= 1000 {
        step *= 10;
    }
    ((ns + step / 2) / step * step) as i64
}
