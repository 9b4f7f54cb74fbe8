//! The traffic of the page in the bins of the profile's senders, which may be narrower than those of
//! pairs: totals by class, and the wire bytes of each sender as a heat map.

use super::exports::sender_grouping;
use super::packed::{self, PackedColumns};
use crate::analysis::Label;
use crate::analysis::matrix::Selection;
use crate::analysis::timeline::{Timeline, sender_timeline};
use crate::model::profile::{BinRetransmissions, Traffic};
use crate::model::{ConnectionClass, Profile, TrafficKind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Maximum number of bins; more are merged by twos.
const MAX_BINS: i64 = 1200;
/// Maximum number of rows and columns of the heat map.
const MAX_ROWS: usize = 512;
const MAX_COLUMNS: i64 = 400;
/// Fewer senders are seen in the matrix and in the stacked classes.
const MIN_SENDERS: usize = 8;

/// The totals by class and bin; `null` if the cells of the page have bins as narrow. A row has the
/// number of the bin, the place of the class, the eight sums in the order of `data.js`, and
/// retransmitted packets and bytes.
pub(super) fn totals(profile: &Profile, origin_ns: i64, cells_ns: i64) -> Value {
    let (rows, own_ns) = profile.sender_series();
    let data = |connection: u32| {
        let connection = profile.connections.get(connection as usize)?;
        (connection.kind == TrafficKind::Data).then_some(connection)
    };
    let times = || rows.iter().filter(|row| data(row.connection).is_some()).map(|row| row.time_ns);
    let (Some(first), Some(last), 1..) = (times().min(), times().max(), own_ns) else { return Value::Null };
    let bin_ns = widened(own_ns, last.saturating_sub(first), MAX_BINS);
    if bin_ns >= cells_ns {
        return Value::Null;
    }
    let first_ns = start_of(first, bin_ns);
    let mut sums: BTreeMap<(i64, ConnectionClass), (Traffic, BinRetransmissions)> = BTreeMap::new();
    for row in rows {
        let Some(connection) = data(row.connection) else { continue };
        let bin = row.time_ns.saturating_sub(first_ns) / bin_ns;
        let (traffic, retransmissions) = sums.entry((bin, connection.class)).or_default();
        *traffic += row.traffic;
        *retransmissions += row.retransmissions;
    }
    let mut bytes: BTreeMap<ConnectionClass, u64> = BTreeMap::new();
    sums.iter().for_each(|((_, class), (own, _))| *bytes.entry(*class).or_default() += own.wire_bytes);
    let mut names: Vec<ConnectionClass> = bytes.keys().copied().collect();
    names.sort_by_key(|class| std::cmp::Reverse(bytes.get(class).copied()));
    let row = |((bin, class), (own, again)): (&(i64, ConnectionClass), &(Traffic, BinRetransmissions))| {
        let place = names.iter().position(|name| name == class);
        json!([
            bin,
            place,
            own.packets,
            own.wire_bytes,
            own.payload_bytes,
            own.messages,
            own.p2p_messages,
            own.p2p_mpi_bytes,
            own.collective_messages,
            own.collective_mpi_bytes,
            again.packets,
            again.wire_bytes
        ])
    };
    json!({
        "bin_ns": bin_ns,
        "first_ns": first_ns.saturating_sub(origin_ns),
        "bins": last.saturating_sub(first_ns) / bin_ns + 1,
        "classes": names.iter().map(|class| class.name()).collect::<Vec<_>>(),
        "rows": sums.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The heat map of many senders: ranks if there are any, otherwise endpoints; `null` for few senders
/// and without bins.
pub(super) fn heat(profile: &Profile, origin_ns: i64) -> io::Result<Value> {
    let by = sender_grouping(profile);
    let Ok(timeline) = sender_timeline(profile, by, Selection::All, None) else { return Ok(Value::Null) };
    let Some((start_ns, end_ns)) = timeline.span_ns() else { return Ok(Value::Null) };
    let senders: Vec<&Label> = timeline.bins.iter().map(|bin| &bin.src).collect::<BTreeSet<_>>().into_iter().collect();
    if senders.len() < MIN_SENDERS || end_ns.saturating_sub(start_ns) <= timeline.bin_ns {
        return Ok(Value::Null);
    }
    let column_ns = widened(timeline.bin_ns, end_ns.saturating_sub(start_ns), MAX_COLUMNS);
    let first_ns = start_of(start_ns, column_ns);
    let columns = usize::try_from((end_ns.saturating_sub(first_ns) + column_ns - 1) / column_ns).unwrap_or_default();
    let block = senders.len().div_ceil(MAX_ROWS).max(1);
    let values = values(&timeline, &senders, block, (first_ns, column_ns, columns));
    let mut packed = PackedColumns::default();
    packed.put(values.iter().copied())?;
    Ok(json!({
        "by": by.name(),
        "bin_ns": column_ns,
        "first_ns": first_ns.saturating_sub(origin_ns),
        "columns": columns,
        "block": block,
        "names": senders.iter().map(|label| label.name()).collect::<Vec<_>>(),
        "values": packed::base64(&packed.finish()?),
    }))
}

/// Wire bytes row by row; a row of several senders has the highest of them.
fn values(
    timeline: &Timeline,
    senders: &[&Label],
    block: usize,
    (first_ns, column_ns, columns): (i64, i64, usize),
) -> Vec<u64> {
    let mut of_senders = vec![0_u64; senders.len() * columns];
    for bin in &timeline.bins {
        let column = usize::try_from((bin.time_ns - first_ns) / column_ns).unwrap_or_default();
        let row = senders.binary_search(&&bin.src).unwrap_or_default();
        let cell = of_senders.get_mut(row * columns + column);
        cell.into_iter().for_each(|sum| *sum = sum.saturating_add(bin.cell.wire_bytes));
    }
    let rows = of_senders.chunks(block * columns);
    let highest = |row: &[u64], column: usize| row.iter().skip(column).step_by(columns).copied().max().unwrap_or(0);
    rows.flat_map(|row| (0..columns).map(move |column| highest(row, column))).collect()
}

/// The width, doubled until the span has at most `most` bins.
pub(super) fn widened(mut bin_ns: i64, span_ns: i64, most: i64) -> i64 {
    while span_ns / bin_ns >= most {
        bin_ns = bin_ns.saturating_mul(2);
    }
    bin_ns
}

/// Start of the bin that contains a time.
pub(super) const fn start_of(time_ns: i64, bin_ns: i64) -> i64 {
    time_ns.div_euclid(bin_ns).saturating_mul(bin_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::GroupBy;
    use crate::analysis::matrix::MatrixCell;
    use crate::analysis::timeline::TimelineBin;

    #[test]
    fn a_row_of_several_senders_has_the_highest_of_them() {
        let labels = [Label::only(0), Label::only(1), Label::only(2)];
        let bin = |time_ns: i64, sender: usize, wire_bytes: u64| TimelineBin {
            time_ns,
            src: labels[sender].clone(),
            dst: None,
            cell: MatrixCell { wire_bytes, ..MatrixCell::default() },
            estimators: None,
        };
        let bins = vec![bin(0, 0, 5), bin(0, 1, 7), bin(10, 0, 1), bin(10, 2, 9), bin(20, 2, 4)];
        let (by, selection) = (GroupBy::Rank, Selection::All);
        let timeline =
            Timeline { by, selection, bin_ns: 10, origin_ns: 0, captured_until_ns: None, sampled: None, bins };
        let senders: Vec<&Label> = labels.iter().collect();
        assert_eq!(values(&timeline, &senders, 1, (0, 10, 3)), [5, 1, 0, 7, 0, 0, 0, 9, 4]);
        assert_eq!(values(&timeline, &senders, 2, (0, 20, 2)), [7, 0, 9, 4]);
        assert_eq!([widened(10, 39, 4), widened(10, 40, 4), widened(10, 160, 4)], [10, 20, 80]);
    }
}
