//! The columns of path fields (SL, VL, P_Key, DSCP, ECN, PCP, UDP source port) in the table of
//! connections.

use crate::model::column::ColumnUnit::Name;
use crate::model::paths::{p_key_text, values_of};
use crate::model::profile::ConnectionRow;
use crate::model::table::Table;
use ibscope_parsers::PathFields;

/// Adds the columns of path fields to the table of connections.
pub(super) fn of_connections(table: Table<ConnectionRow>) -> Table<ConnectionRow> {
    fn text<T: Copy + Ord>(
        row: &ConnectionRow,
        field: impl Fn(PathFields) -> Option<T>,
        show: impl Fn(T) -> String,
    ) -> Option<String> {
        if let [path] = &row.paths[..] {
            return field(path.fields).map(show);
        }
        let values = values_of(&row.paths, field);
        let texts: Vec<String> = values.into_iter().map(show).collect();
        (!texts.is_empty()).then(|| texts.join(";"))
    }
    fn number<T: Copy + Ord + ToString>(
        row: &ConnectionRow,
        field: impl Fn(PathFields) -> Option<T>,
    ) -> Option<String> {
        text(row, field, |value| value.to_string())
    }
    table
        .column("sl", Name, "service levels of the packets, separated by `;`, most frequent first; the lists in the next columns are sorted in the same way, each by itself: entries at the same position do not belong together; null where no packet has the field", |row| {
            number(row, PathFields::sl)
        })
        .column("vl", Name, "virtual lanes", |row| number(row, PathFields::vl))
        .column("p_key", Name, "partition keys; bit 15 marks a full member", |row| {
            text(row, PathFields::p_key, p_key_text)
        })
        .column("dscp", Name, "DSCP values", |row| number(row, PathFields::dscp))
        .column("ecn", Name, "ECN values: 0 not capable, 1 or 2 capable, 3 congestion experienced", |row| number(row, PathFields::ecn))
        .column("pcp", Name, "priorities in VLAN tags", |row| number(row, PathFields::priority))
        .column("udp_src_port", Name, "UDP source ports; ends in `more` if there are more than the limit", |row| {
            let ports = number(row, PathFields::port);
            let more = row.paths.iter().any(|path| path.fields.has_further_ports() || path.fields.is_others());
            ports.map(|ports| if more { format!("{ports};more") } else { ports })
        })
}
