//! A reader of Chakra execution traces by the field numbers of the published schema
//! (`schema/protobuf/et_def.proto` of github.com/mlcommons/chakra, version 1.0.0), and by the wire
//! format of protocol buffers (protobuf.dev/programming-guides/encoding). Unknown fields fail.

use std::collections::BTreeMap;

/// `NodeType`.
pub(super) mod node_types {
    pub(in super::super) const METADATA_NODE: u64 = 1;
    pub(in super::super) const COMP_NODE: u64 = 4;
    pub(in super::super) const COMM_SEND_NODE: u64 = 5;
    pub(in super::super) const COMM_RECV_NODE: u64 = 6;
    pub(in super::super) const COMM_COLL_NODE: u64 = 7;
}

/// `CollectiveCommType`.
pub(super) mod comm_types {
    pub(in super::super) const ALL_REDUCE: i64 = 0;
    pub(in super::super) const REDUCE: i64 = 1;
    pub(in super::super) const ALL_GATHER: i64 = 2;
    pub(in super::super) const GATHER: i64 = 3;
    pub(in super::super) const SCATTER: i64 = 4;
    pub(in super::super) const BROADCAST: i64 = 5;
    pub(in super::super) const ALL_TO_ALL: i64 = 6;
    pub(in super::super) const REDUCE_SCATTER: i64 = 7;
    pub(in super::super) const BARRIER: i64 = 9;
}

/// Field numbers of `GlobalMetadata`.
mod global_metadata {
    pub(super) const VERSION: u64 = 1;
    pub(super) const ATTR: u64 = 2;
}

/// Field numbers of `Node`.
mod node {
    pub(super) const ID: u64 = 1;
    pub(super) const NAME: u64 = 2;
    pub(super) const TYPE: u64 = 3;
    pub(super) const DATA_DEPS: u64 = 5;
    pub(super) const START_TIME_MICROS: u64 = 6;
    pub(super) const DURATION_MICROS: u64 = 7;
    pub(super) const INPUTS: u64 = 8;
    pub(super) const ATTR: u64 = 10;
}

/// Field number of `AttributeProto.name`.
const ATTRIBUTE_NAME: u64 = 1;

/// Field number of `IOInfo.values`.
const IO_INFO_VALUES: u64 = 1;

/// The members of `AttributeProto.value` that the traces use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeField {
    Int32 = 7,
    Int64 = 9,
    Bool = 27,
    Text = 29,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeContent {
    Number(i64),
    Text(String),
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceNode {
    pub(super) id: u64,
    pub(super) node_type: u64,
    pub(super) data_deps: Vec<u64>,
    pub(super) start_time_micros: u64,
    pub(super) duration_micros: u64,
    /// `IOInfo.values` of its inputs.
    pub(super) inputs: Option<String>,
    pub(super) attributes: BTreeMap<String, (AttributeField, AttributeContent)>,
}

impl TraceNode {
    pub(super) fn number(&self, name: &str) -> i64 {
        match &self.attributes[name].1 {
            AttributeContent::Number(number) => *number,
            AttributeContent::Text(text) => panic!("{name}: {text}"),
        }
    }

    pub(super) fn text(&self, name: &str) -> &str {
        match &self.attributes[name].1 {
            AttributeContent::Text(text) => text,
            AttributeContent::Number(number) => panic!("{name}: {number}"),
        }
    }
}

/// A value on the wire.
enum WireValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    fn varint(&self) -> u64 {
        if let Self::Varint(number) = self { *number } else { panic!("no varint") }
    }

    fn bytes(&self) -> &'a [u8] {
        if let Self::Bytes(bytes) = self { bytes } else { panic!("no bytes") }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("text")
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().expect("a byte");
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return number;
        }
    }
    panic!("a varint of more than 10 bytes")
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = varint(bytes) as usize;
    bytes.split_off(..length).expect("a message")
}

/// The fields of a message: number and value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, WireValue<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => WireValue::Varint(varint(&mut bytes)),
            2 => WireValue::Bytes(delimited(&mut bytes)),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

/// The nodes of a file: `GlobalMetadata`, then each `Node`, behind their lengths.
pub(super) fn read(mut file: &[u8]) -> Vec<TraceNode> {
    let mut version = None;
    for (number, value) in fields(delimited(&mut file)) {
        match number {
            global_metadata::VERSION => version = Some(value.text()),
            global_metadata::ATTR => assert_eq!(attribute(value.bytes()).0, "creator"),
            other => panic!("GlobalMetadata has no field {other}"),
        }
    }
    assert_eq!(version.as_deref(), Some("1.0.0"));
    let mut nodes = Vec::new();
    while !file.is_empty() {
        nodes.push(node(delimited(&mut file)));
    }
    nodes
}

fn node(bytes: &[u8]) -> TraceNode {
    let mut node = TraceNode::default();
    for (number, value) in fields(bytes) {
        match number {
            node::ID => node.id = value.varint(),
            node::NAME => assert!(!value.text().is_empty()),
            node::TYPE => node.node_type = value.varint(),
            node::DATA_DEPS => {
                let mut packed = value.bytes();
                while !packed.is_empty() {
                    node.data_deps.push(varint(&mut packed));
                }
            }
            node::START_TIME_MICROS => node.start_time_micros = value.varint(),
            node::DURATION_MICROS => node.duration_micros = value.varint(),
            node::INPUTS => {
                let [(IO_INFO_VALUES, values)] = &fields(value.bytes())[..] else { panic!("IOInfo has values only") };
                node.inputs = Some(values.text());
            }
            node::ATTR => {
                let (name, value) = attribute(value.bytes());
                assert!(node.attributes.insert(name, value).is_none());
            }
            other => panic!("the traces use no field {other} of Node"),
        }
    }
    node
}

fn attribute(bytes: &[u8]) -> (String, (AttributeField, AttributeContent)) {
    const INT32_VAL: u64 = AttributeField::Int32 as u64;
    const INT64_VAL: u64 = AttributeField::Int64 as u64;
    const BOOL_VAL: u64 = AttributeField::Bool as u64;
    const STRING_VAL: u64 = AttributeField::Text as u64;
    let (mut name, mut content) = (String::new(), None);
    for (number, value) in fields(bytes) {
        content = Some(match number {
            ATTRIBUTE_NAME => {
                name = value.text();
                continue;
            }
            INT32_VAL => (AttributeField::Int32, AttributeContent::Number(i64::from(value.varint() as i32))),
            INT64_VAL => (AttributeField::Int64, AttributeContent::Number(value.varint() as i64)),
            BOOL_VAL => (AttributeField::Bool, AttributeContent::Number(value.varint() as i64)),
            STRING_VAL => (AttributeField::Text, AttributeContent::Text(value.text())),
            other => panic!("the traces use no field {other} of AttributeProto"),
        });
    }
    (name, content.expect("a value"))
}
