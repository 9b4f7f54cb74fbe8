//! Channels and rails of NCCL as terminal table, csv and JSON.

use super::table::{Table, write_document};
use super::units::{bytes, group};
use crate::analysis::Label;
use crate::analysis::nccl_collectives::{NcclDataPath, NcclPathShare};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number, Ratio};
use serde_json::json;
use std::io::{self, Write};

/// The columns of `collectives --view channels`.
pub(super) fn shares_table() -> Table<NcclPathShare> {
    Table::new("ibscope collectives --view channels --format csv")
        .column("job", Number, "number of the job, from 1", |row: &NcclPathShare| row.job)
        .column("src", Number, "rank that sends the data", |row| row.src)
        .headed("src")
        .column("dst", Number, "rank that receives the data", |row| row.dst)
        .headed("dst")
        .column(
            "path",
            Name,
            "`channel`: a connection of NCCL, one direction of one channel (those of `ncclSend` are separate); `no_channel`: messages whose receive was not captured at the port of their first share, so that their channel is not known; `rail`: a pair of ports",
            path,
        )
        .shown_left("path", |row| {
            channel(row).map_or_else(|| path(row).to_owned(), |(number, ..)| format!("channel {number}"))
        })
        .column(
            "channel",
            Number,
            "number of the channel among those of these ranks, from 1, by the address of its receives in the sender's memory; NCCL's own number is not on the wire",
            |row| channel(row).map(|(number, ..)| number),
        )
        .label("src_port", "port of the sender; empty for channels", |row| ports(row).map(|(src, _)| src))
        .label("dst_port", "port of the receiver; empty for channels", |row| ports(row).map(|(_, dst)| dst))
        .shown_left("ports", |row| {
            ports(row).map_or_else(String::new, |(src, dst)| format!("{} → {}", src.name(), dst.name()))
        })
        .column(
            "queue_pairs",
            Count,
            "queue pairs of the rail that carry data; empty for channels",
            |row| match row.path {
                NcclDataPath::Rail { queue_pairs, .. } => Some(queue_pairs),
                NcclDataPath::Channel { .. } | NcclDataPath::NoChannel { .. } => None,
            },
        )
        .column("messages", Count, "messages; empty for rails", messages)
        .shown("messages", |row| messages(row).map_or_else(|| "-".to_owned(), group))
        .column(
            "bytes",
            Bytes,
            "data: of a channel those of its messages, of a rail the payload of its queue pairs (those that start no message and whose WRITEs have at most 512 bytes on average carry clear-to-send elements and do not count), with 4 bytes for each of several messages that are received together",
            |row| row.bytes,
        )
        .shown("bytes", |row| bytes(row.bytes))
        .column(
            "of_mean",
            Ratio,
            "`bytes` divided by the mean of all channels, or of all rails, of these ranks: 1 if all carry the same; the largest one is the imbalance; empty for channels if the channel of some messages is not known",
            |row| row.of_mean,
        )
        .decimals(4)
        .shown("of mean", |row| row.of_mean.map_or_else(|| "?".to_owned(), |of_mean| format!("{of_mean:.2}")))
        .column("message_bytes", Bytes, "length of the channel's longest message, a slice of a chunk", |row| {
            channel(row).map(|(_, message_bytes, _)| message_bytes)
        })
        .column(
            "chunk_bytes",
            Bytes,
            "length of its longest chunk: one message, or two where the receives alternate between four buffers; empty if they do not show it",
            |row| channel(row).and_then(|(.., chunk_bytes)| chunk_bytes),
        )
        .shown("chunk", |row| match channel(row) {
            Some((.., Some(chunk_bytes))) => bytes(chunk_bytes),
            Some(_) => "?".to_owned(),
            None => "-".to_owned(),
        })
}

const fn path(row: &NcclPathShare) -> &'static str {
    match row.path {
        NcclDataPath::Channel { .. } => "channel",
        NcclDataPath::NoChannel { .. } => "no_channel",
        NcclDataPath::Rail { .. } => "rail",
    }
}

/// Number, and the lengths of a message and of a chunk.
const fn channel(row: &NcclPathShare) -> Option<(u64, u64, Option<u64>)> {
    match row.path {
        NcclDataPath::Channel { number, message_bytes, chunk_bytes, .. } => Some((number, message_bytes, chunk_bytes)),
        NcclDataPath::NoChannel { .. } | NcclDataPath::Rail { .. } => None,
    }
}

const fn messages(row: &NcclPathShare) -> Option<u64> {
    match row.path {
        NcclDataPath::Channel { messages, .. } | NcclDataPath::NoChannel { messages } => Some(messages),
        NcclDataPath::Rail { .. } => None,
    }
}

const fn ports(row: &NcclPathShare) -> Option<(&Label, &Label)> {
    match &row.path {
        NcclDataPath::Rail { ports: (src, dst), .. } => Some((src, dst)),
        NcclDataPath::Channel { .. } | NcclDataPath::NoChannel { .. } => None,
    }
}

/// The terminal table.
#[must_use]
pub fn table(shares: &[NcclPathShare]) -> String {
    if shares.is_empty() {
        return "no message of NCCL with known ranks was found\n".to_owned();
    }
    format!("{}\n", shares_table().text(shares))
}

/// Writes one csv row per channel and rail.
pub fn csv(shares: &[NcclPathShare], out: &mut dyn Write) -> io::Result<()> {
    shares_table().csv(shares, out)
}

/// Writes one JSON object with the csv rows.
pub fn json(shares: &[NcclPathShare], out: &mut dyn Write) -> io::Result<()> {
    write_document(out, "ibscope nccl channels", 1, json!({ "paths": shares_table().objects(shares) }))
}
