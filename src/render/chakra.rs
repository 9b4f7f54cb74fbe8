//! Chakra execution traces, the input of ASTRA-sim and other simulators of `MLCommons`.
//!
//! In: the nodes of one rank. Out: an `.et` file: a `GlobalMetadata` message, then a `Node` message
//! per node, each behind its length. Schema: `schema/protobuf/et_def.proto` in
//! github.com/mlcommons/chakra, version 1.0.0; attributes as its `et_feeder_node.cpp` reads them.

use crate::analysis::chakra_trace::{ChakraNode, ChakraNodeKind};
use crate::analysis::rank_events::{EventCommunicator, EventPlan};
use crate::analysis::rank_schedule::PeerMessage;
use ibscope_parsers::mpi::MpiOperation;
use prost::{Enumeration, Message, Oneof};
use serde_json::json;
use std::io::{self, Write};

/// Version of the schema.
const SCHEMA_VERSION: &str = "1.0.0";

/// Name of the process group of all ranks.
const ALL_RANKS: &str = "0";

/// `GlobalMetadata` of the schema.
#[derive(Clone, PartialEq, Message)]
struct GlobalMetadata {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, repeated, tag = "2")]
    attr: Vec<AttributeProto>,
}

/// `Node` of the schema.
#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(enumeration = "ChakraNodeType", tag = "3")]
    node_type: i32,
    #[prost(uint64, repeated, tag = "5")]
    data_deps: Vec<u64>,
    #[prost(uint64, tag = "6")]
    start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    duration_micros: u64,
    #[prost(message, optional, tag = "8")]
    inputs: Option<IoInfoProto>,
    #[prost(message, repeated, tag = "10")]
    attr: Vec<AttributeProto>,
}

/// `IOInfo` of the schema.
#[derive(Clone, PartialEq, Message)]
struct IoInfoProto {
    #[prost(string, tag = "1")]
    values: String,
}

/// `AttributeProto` of the schema.
#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(oneof = "AttributeValue", tags = "7, 9, 27, 29")]
    value: Option<AttributeValue>,
}

/// The types of attributes that the traces use.
#[derive(Clone, PartialEq, Oneof)]
enum AttributeValue {
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(string, tag = "29")]
    Text(String),
}

/// `NodeType` of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
enum ChakraNodeType {
    Invalid = 0,
    Metadata = 1,
    Compute = 4,
    Send = 5,
    Receive = 6,
    Collective = 7,
}

/// `CollectiveCommType` of the schema; `None` if the schema does not have the operation.
const fn comm_type(operation: MpiOperation) -> Option<i64> {
    Some(match operation {
        MpiOperation::Allreduce => 0,
        MpiOperation::Reduce => 1,
        MpiOperation::Allgather => 2,
        MpiOperation::Gather => 3,
        MpiOperation::Scatter => 4,
        MpiOperation::Bcast => 5,
        MpiOperation::Alltoall => 6,
        // Blocks of equal lengths. The schema also has REDUCE_SCATTER_BLOCK, which PyTorch does not
        // write and ASTRA-sim does not read.
        MpiOperation::ReduceScatterBlock => 7,
        MpiOperation::Barrier => 9,
        _ => return None,
    })
}

/// Writes the trace of `rank`. `nodes` begin with those of the rank; those of other ranks are left.
pub fn write(
    plan: &EventPlan,
    rank: u32,
    nodes: &mut std::iter::Peekable<impl Iterator<Item = io::Result<ChakraNode>>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let creator = text("creator", concat!("ibscope ", env!("CARGO_PKG_VERSION")));
    put(&GlobalMetadata { version: SCHEMA_VERSION.to_owned(), attr: vec![creator] }, out)?;
    if let Some(groups) = process_groups(plan) {
        put(&groups, out)?;
    }
    while let Some(node) = nodes.next_if(|next| next.as_ref().map_or(true, |next| next.rank == rank)) {
        put(&proto(plan, node?)?, out)?;
    }
    Ok(())
}

fn put(message: &impl Message, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&message.encode_length_delimited_to_vec())
}

/// The communicators of collective operations, as `PyTorch` writes them: JSON in the inputs of a node.
/// `None` if there are none.
fn process_groups(plan: &EventPlan) -> Option<NodeProto> {
    let group = |(at, (communicator, members)): (u32, &(EventCommunicator, Vec<u32>))| match communicator {
        EventCommunicator::Named(name) => Some(
            json!({ "pg_name": group_name(plan, at), "pg_desc": name, "pg_size": members.len(), "ranks": members }),
        ),
        EventCommunicator::World | EventCommunicator::Context(_) => None,
    };
    let groups: Vec<serde_json::Value> = (0..).zip(&plan.communicators).filter_map(group).collect();
    (!groups.is_empty()).then(|| NodeProto {
        id: 0,
        name: "## process_group:init ##".to_owned(),
        node_type: ChakraNodeType::Metadata as i32,
        inputs: Some(IoInfoProto { values: format!("['{}']", serde_json::Value::from(groups)) }),
        ..NodeProto::default()
    })
}

/// Name of the process group of a communicator: a number, because simulators read it as a number.
fn group_name(plan: &EventPlan, communicator: u32) -> String {
    match plan.communicators.get(communicator as usize) {
        Some((EventCommunicator::World, _)) | None => ALL_RANKS.to_owned(),
        Some(_) => (communicator + 1).to_string(),
    }
}

fn proto(plan: &EventPlan, node: ChakraNode) -> io::Result<NodeProto> {
    let rank = int32("comm_src", node.rank);
    let (node_type, name, attr) = match node.kind {
        ChakraNodeKind::Send(own) => {
            let attr = vec![rank, int32("comm_dst", own.peer)];
            (ChakraNodeType::Send, format!("COMM_SEND_NODE to {}", own.peer), message(attr, own))
        }
        ChakraNodeKind::Receive(own) => {
            let attr = vec![int32("comm_src", own.peer), int32("comm_dst", node.rank)];
            (ChakraNodeType::Receive, format!("COMM_RECV_NODE from {}", own.peer), message(attr, own))
        }
        ChakraNodeKind::Collective { operation, communicator, input_bytes } => {
            let comm_type = comm_type(operation)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "Chakra does not have the operation"))?;
            let attr = vec![
                int64("comm_type", comm_type),
                int64("comm_size", i64::try_from(input_bytes).map_err(io::Error::other)?),
                text("pg_name", &group_name(plan, communicator)),
            ];
            (ChakraNodeType::Collective, format!("COMM_COLL_NODE {}", operation.name()), attr)
        }
        ChakraNodeKind::Compute => (ChakraNodeType::Compute, "COMP_NODE".to_owned(), Vec::new()),
    };
    let mut attr = attr;
    // Computation and communication of a rank may overlap only if neither is on the CPU.
    attr.insert(0, AttributeProto { name: "is_cpu_op".to_owned(), value: Some(AttributeValue::Bool(false)) });
    Ok(NodeProto {
        id: node.id,
        name,
        node_type: node_type as i32,
        data_deps: node.data_deps,
        start_time_micros: node.start_us,
        duration_micros: node.duration_us,
        inputs: None,
        attr,
    })
}

/// The attributes of a message after those of its ranks.
fn message(mut attr: Vec<AttributeProto>, own: PeerMessage) -> Vec<AttributeProto> {
    attr.push(int64("comm_size", own.bytes as i64));
    attr.push(int32("comm_tag", own.tag));
    attr
}

fn int32(name: &str, value: u32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), value: Some(AttributeValue::Int32(value as i32)) }
}

fn int64(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), value: Some(AttributeValue::Int64(value)) }
}

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), value: Some(AttributeValue::Text(value.to_owned())) }
}
