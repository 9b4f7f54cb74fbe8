//! Packets one by one: a table for people, csv and JSON lines for programs.

use crate::model::InspectedPacket;
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How packets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Aligned columns, endpoints by name where they have one, time from the first packet.
    Table,
    /// `frame,time_ns,src,dst,opcode,dest_qp,psn,wire_bytes,captured_bytes,payload_bytes,icrc`.
    Csv,
    /// One object per line with the same fields.
    Json,
}

/// A stream of lines.
pub struct Lines<'a> {
    form: Form,
    names: &'a BTreeMap<Endpoint, String>,
    out: &'a mut dyn Write,
    start_ns: Option<i64>,
}

impl<'a> Lines<'a> {
    /// Writes the header.
    pub fn begin(form: Form, names: &'a BTreeMap<Endpoint, String>, out: &'a mut dyn Write) -> io::Result<Self> {
        match form {
            Form::Table => writeln!(
                out,
                "{:>7} {:>13} {:>15} {:>15}  {:<30} {:>8} {:>8} {:>6} {:>7}  ICRC",
                "frame", "time [s]", "source", "destination", "opcode", "dest QP", "PSN", "wire B", "payload"
            )?,
            Form::Csv => {
                writeln!(out, "frame,time_ns,src,dst,opcode,dest_qp,psn,wire_bytes,captured_bytes,payload_bytes,icrc")?;
            }
            Form::Json => {}
        }
        Ok(Self { form, names, out, start_ns: None })
    }

    /// Writes one packet.
    pub fn packet(&mut self, packet: &InspectedPacket) -> io::Result<()> {
        let InspectedPacket { frame, src, dst, opcode, wire_bytes, captured_bytes, payload_bytes, .. } = packet;
        let (dest_qp, psn, icrc) = (packet.dest_qp.value(), packet.psn.value(), packet.icrc.name());
        match self.form {
            Form::Table => {
                let (src, dst, opcode) = (self.name(src), self.name(dst), opcode.to_string());
                let time = since_start(packet.time_ns, &mut self.start_ns);
                writeln!(
                    self.out,
                    "{frame:>7} {time:>13} {src:>15} {dst:>15}  {opcode:<30} {dest_qp:>#8x} {psn:>8} {wire_bytes:>6} \
                     {payload_bytes:>7}  {icrc}"
                )
            }
            Form::Csv => {
                let time = packet.time_ns.map(|time_ns| time_ns.to_string()).unwrap_or_default();
                writeln!(
                    self.out,
                    "{frame},{time},{src},{dst},{opcode},{dest_qp},{psn},{wire_bytes},{captured_bytes},{payload_bytes},{icrc}"
                )
            }
            Form::Json => {
                let object = serde_json::json!({
                    "frame": frame, "time_ns": packet.time_ns, "src": src.to_string(), "dst": dst.to_string(),
                    "opcode": opcode.to_string(), "dest_qp": dest_qp, "psn": psn, "wire_bytes": wire_bytes,
                    "captured_bytes": captured_bytes, "payload_bytes": payload_bytes, "icrc": icrc,
                });
                writeln!(self.out, "{object}")
            }
        }
    }

    fn name(&self, endpoint: &Endpoint) -> String {
        self.names.get(endpoint).cloned().unwrap_or_else(|| endpoint.to_string())
    }
}

/// Seconds since the first time that was shown.
pub(crate) fn since_start(time_ns: Option<i64>, start_ns: &mut Option<i64>) -> String {
    let Some(time_ns) = time_ns else { return "-".to_owned() };
    let since = time_ns.saturating_sub(*start_ns.get_or_insert(time_ns));
    let sign = if since < 0 { "-" } else { "" };
    let since = since.unsigned_abs();
    format!("{sign}{}.{:09}", since / 1_000_000_000, since % 1_000_000_000)
}
