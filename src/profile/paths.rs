//! The Parquet table of paths: packets by connection and combination of path fields (SL, VL, P_Key,
//! DSCP, ECN, PCP, UDP source port).

use super::ProfileError;
use super::decode::{TableFile, TableReader};
use super::tables::CONNECTION;
use crate::model::PathSums;
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number};
use crate::model::paths::add_path;
use crate::model::profile::ConnectionRow;
use crate::model::table::Table;
use ibscope_parsers::PathFields;
use std::path::Path;

/// Columns with a path field, and the largest value of each.
const FIELDS: [(&str, u32); 7] =
    [("sl", 15), ("vl", 15), ("p_key", 0xFFFF), ("dscp", 63), ("ecn", 3), ("pcp", 7), ("udp_src_port", 0xFFFF)];

/// One combination of path fields of a connection.
pub(super) struct PathRow {
    connection: u32,
    sums: PathSums,
}

/// The rows of all connections.
pub(super) fn rows(connections: &[ConnectionRow]) -> impl Iterator<Item = PathRow> {
    let numbered = (0..).zip(connections);
    numbered.flat_map(|(connection, row)| row.paths.iter().map(move |sums| PathRow { connection, sums: *sums }))
}

/// The table of paths.
pub(super) fn table() -> Table<PathRow> {
    Table::new("paths.parquet")
        .column("connection", Number, CONNECTION, |row: &PathRow| row.connection)
        .column("sl", Number, "service level in the LRH; null on Ethernet", |row| row.sums.fields.sl().map(u32::from))
        .column("vl", Number, "virtual lane in the LRH; null on Ethernet", |row| row.sums.fields.vl().map(u32::from))
        .column("p_key", Number, "partition key in the BTH; bit 15 marks a full member; null for the packets of all combinations beyond the limit", |row| {
            row.sums.fields.p_key().map(u32::from)
        })
        .column("dscp", Number, "DSCP in the IP header, or the upper six bits of the traffic class in the GRH of RoCEv1; null on InfiniBand", |row| {
            row.sums.fields.dscp().map(u32::from)
        })
        .column("ecn", Number, "ECN in the same byte: 0 not capable, 1 or 2 capable, 3 congestion experienced", |row| {
            row.sums.fields.ecn().map(u32::from)
        })
        .column("pcp", Number, "priority in the VLAN tag; null without a tag", |row| row.sums.fields.priority().map(u32::from))
        .column("udp_src_port", Number, "UDP source port; null without UDP, and for the packets of the ports beyond the limit", |row| {
            row.sums.fields.port().map(u32::from)
        })
        .column("beyond_limit", Name, "`ports`: packets of UDP ports beyond the limit; `values`: packets of combinations beyond the limit; null in rows of a single combination", |row| {
            let fields = row.sums.fields;
            if fields.is_others() { Some("values") } else { fields.has_further_ports().then_some("ports") }
        })
        .column("packets", Count, "packets; a packet and its mirror copy count once; 0 for a combination that only the second observation point observed", |row| row.sums.packets)
        .column("wire_bytes", Bytes, "bytes of these packets, from LRH to VCRC or the whole Ethernet frame", |row| row.sums.wire_bytes)
        .column("retransmitted_packets", Count, "retransmitted packets", |row| row.sums.retransmitted_packets)
        .column("ecn_ce_packets", Count, "packets with ECN \"congestion experienced\", at any observation point", |row| row.sums.ecn_ce_packets)
}

/// Reads the table into the connections.
pub(super) fn read(path: &Path, bytes: Vec<u8>, connections: &mut [ConnectionRow]) -> Result<(), ProfileError> {
    let table = TableFile::open(path, bytes)?;
    let count = connections.len();
    // Within the limit even if the file is not.
    let mut add = |row: PathRow| add_path(&mut connections[row.connection as usize].paths, row.sums);
    table.for_each_part(|part| read_part(part, count), |rows| rows.into_iter().for_each(&mut add))
}

fn read_part(table: &TableReader<'_>, connections: usize) -> Result<Vec<PathRow>, ProfileError> {
    let connection = table.u32("connection")?;
    let fields = FIELDS.into_iter().map(|(name, _)| table.u32(name)).collect::<Result<Vec<_>, ProfileError>>()?;
    let beyond = table.text("beyond_limit")?;
    let sums = table.u64s(["packets", "wire_bytes", "retransmitted_packets", "ecn_ce_packets"])?;
    let row = |row: usize| {
        let connection = table.connection(&connection, row, connections)?;
        let mut values = [None; FIELDS.len()];
        for (value, ((name, most), column)) in values.iter_mut().zip(FIELDS.into_iter().zip(&fields)) {
            *value = table.field((name, column), row, most)?;
        }
        let [packets, wire_bytes, retransmitted_packets, ecn_ce_packets] = table.values(&sums, row)?;
        let fields = path_fields(values, beyond.get(row).copied().flatten());
        let sums = PathSums { fields, packets, wire_bytes, retransmitted_packets, ecn_ce_packets };
        Ok(PathRow { connection, sums })
    };
    (0..table.rows()).map(row).collect()
}

/// The fields of a row.
fn path_fields(values: [Option<u32>; FIELDS.len()], beyond: Option<&str>) -> PathFields {
    let [sl, vl, p_key, dscp, ecn, pcp, port] = values;
    let Some(p_key) = p_key.filter(|_| beyond != Some("values")) else { return PathFields::OTHERS };
    let byte = |value: Option<u32>| value.unwrap_or(0) as u8;
    let mut fields = PathFields::default();
    if sl.is_some() {
        fields = PathFields::native([byte(vl) << 4, byte(sl) << 4]);
    } else if dscp.is_some() {
        fields = PathFields::roce_v1(byte(dscp) << 2 | byte(ecn) & 3);
    }
    fields = fields.with_p_key(p_key as u16).with_priority(pcp.map(|pcp| pcp as u8));
    match port {
        Some(port) => fields.with_port(port as u16),
        None if beyond == Some("ports") => fields.with_port(0).without_port(),
        None => fields,
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    /// Reads a row in which one field has another value.
    fn read_with(name: &'static str, value: u32, fields: PathFields) -> Result<PathFields, ProfileError> {
        let path = Path::new("paths.parquet");
        let mut table = table();
        table.columns.retain(|column| column.description.name != name);
        let table = table.column(name, Number, "a field", move |_: &PathRow| value);
        let sums = PathSums { fields, ..PathSums::default() };
        let bytes = encode::bytes(path, [vec![PathRow { connection: 0, sums }]].iter(), &table).unwrap();
        let rows = TableFile::open(path, bytes)?.read(|part| read_part(part, 1))?;
        Ok(rows[0].sums.fields)
    }

    #[test]
    fn values_that_do_not_fit_are_rejected() {
        let native = PathFields::native([0x10, 0x20]).with_p_key(0xFFFF);
        let roce = PathFields::roce_v1(0).with_p_key(0xFFFF).with_priority(Some(0)).with_port(49152);
        for (name, most, fields) in [
            ("sl", 15, native),
            ("vl", 15, native),
            ("p_key", 0xFFFF, native),
            ("dscp", 63, roce),
            ("ecn", 3, roce),
            ("pcp", 7, roce),
            ("udp_src_port", 0xFFFF, roce),
        ] {
            let largest = read_with(name, most, fields).unwrap();
            let found = match name {
                "sl" => largest.sl().map(u32::from),
                "vl" => largest.vl().map(u32::from),
                "p_key" => largest.p_key().map(u32::from),
                "dscp" => largest.dscp().map(u32::from),
                "ecn" => largest.ecn().map(u32::from),
                "pcp" => largest.priority().map(u32::from),
                _ => largest.port().map(u32::from),
            };
            assert_eq!(found, Some(most), "{name}");
            // As a `u8` or `u16`, the second one would be 0.
            for value in [most + 1, 1 << 16, u32::MAX] {
                let error = read_with(name, value, fields).unwrap_err().to_string();
                let expected = format!("{value} in `{name}` is larger than {most}");
                assert!(error.contains("paths.parquet") && error.contains(&expected), "{error}");
            }
        }
    }
}
