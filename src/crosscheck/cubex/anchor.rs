//! The definitions of a Cube profile (`anchor.xml`): metrics, call tree, and the rank and host of
//! each location.

use crate::model::printable;
use ibscope_parsers::tools::otf2_print::Collective;
use roxmltree::{Document, Node, NodeId};
use std::collections::{BTreeMap, HashMap};

/// Limits of the attributes of an element and of the namespaces of a document, far above what Cube
/// uses. The XML library compares all attributes of an element with each other, and copies the
/// namespaces of an element to all its descendants: above these limits, time and memory would not
/// be linear.
const MAX_ATTRIBUTES: usize = 64;
const MAX_NAMESPACES: usize = 64;
/// Longest host name. Each rank has its own copy.
const MAX_HOST_BYTES: usize = 256;

/// True if the XML library parses the text in linear time. Must be checked before parsing.
pub(super) fn is_plain(text: &str) -> bool {
    let mut namespaces = 0;
    // Attribute values contain no `<`. Comments and processing instructions have no attributes.
    text.split('<').skip(1).filter(|tag| !tag.starts_with(['!', '?'])).all(|tag| {
        namespaces += tag.matches("xmlns").count();
        attributes(tag) <= MAX_ATTRIBUTES && namespaces <= MAX_NAMESPACES
    })
}

/// Number of attributes of a tag, which ends at the first `>` outside of quotes.
fn attributes(tag: &str) -> usize {
    let (mut count, mut quote) = (0, None);
    for byte in tag.bytes() {
        match (quote, byte) {
            (Some(own), _) if byte == own => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'=') => count += 1,
            (None, b'>') => break,
            _ => {}
        }
    }
    count
}

/// The definitions of a profile.
#[derive(Clone, Debug, Default)]
pub(super) struct CubeAnchor {
    /// The program that wrote the profile.
    pub(super) creator: String,
    /// Metrics by name.
    pub(super) metrics: BTreeMap<String, Metric>,
    /// The call of each call tree node, in document order. The data of exclusive metrics refers to
    /// nodes by their index in this order.
    pub(super) calls: Vec<Call>,
    /// Rank of each location, by location number.
    pub(super) locations: Vec<Option<u32>>,
    /// Host of each rank.
    pub(super) hosts: BTreeMap<u32, Option<String>>,
}

/// A metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    /// Its number, which is part of the names of its files.
    pub(super) id: u32,
    /// Type of its values, in Cube's terms.
    pub(super) data_type: String,
    /// `EXCLUSIVE` if the value of a node does not include the nodes that it calls.
    pub(super) kind: String,
}

/// The role of a call tree node for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Sends one message, unless to `MPI_PROC_NULL`.
    Send,
    /// Receives one message.
    Receive,
    /// Sends one message and receives one.
    SendReceive,
    /// Starts persistent requests of unknown number and kind.
    Start,
    /// Completes requests of any kind: received bytes are of messages and of nonblocking
    /// collectives, sent bytes only of nonblocking collectives.
    Complete,
    /// A collective operation.
    Collective(Collective),
    /// A nonblocking collective operation, whose bytes are counted at its completion.
    Nonblocking(Collective),
    /// Another MPI function.
    Mpi,
    /// Not an MPI function.
    Other,
}

/// Roles of regions that are collective operations.
const COLLECTIVE: [&str; 5] = ["barrier", "one2all", "all2one", "all2all", "other collective"];

impl Call {
    fn of(name: &str, role: &str) -> Self {
        let Some(name) = name.strip_prefix("MPI_") else { return Self::Other };
        match name {
            "Send" | "Bsend" | "Ssend" | "Rsend" | "Isend" | "Ibsend" | "Issend" | "Irsend" => Self::Send,
            "Recv" | "Irecv" | "Mrecv" | "Imrecv" => Self::Receive,
            "Sendrecv" | "Sendrecv_replace" | "Isendrecv" | "Isendrecv_replace" => Self::SendReceive,
            "Start" | "Startall" => Self::Start,
            "Wait" | "Waitall" | "Waitany" | "Waitsome" | "Test" | "Testall" | "Testany" | "Testsome" => Self::Complete,
            _ if COLLECTIVE.contains(&role) => {
                let operation = |name: &str| Collective::ALL.iter().find(|known| known.name() == name).copied();
                let name = name.to_ascii_lowercase();
                match (operation(&name), name.strip_prefix('i')) {
                    (Some(known), _) => Self::Collective(known),
                    (None, Some(name)) => Self::Nonblocking(operation(name).unwrap_or(Collective::Unknown)),
                    (None, None) => Self::Collective(Collective::Unknown),
                }
            }
            _ => Self::Mpi,
        }
    }
}

impl CubeAnchor {
    /// Reads the definitions; `None` if a required one is missing.
    pub(super) fn read(document: &Document<'_>) -> Option<Self> {
        let mut anchor = Self::default();
        let root = document.root_element();
        let creator =
            root.children().find(|node| node.has_tag_name("attr") && node.attribute("key") == Some("Creator"));
        anchor.creator = creator.and_then(|node| node.attribute("value")).map(printable).unwrap_or_default();
        let mut regions: BTreeMap<u32, Call> = BTreeMap::new();
        let mut locations = BTreeMap::new();
        // Host of each system tree node, its own or inherited. Stored per node, because a profile
        // may have any number of processes at any depth.
        let mut hosts: HashMap<NodeId, Option<String>> = HashMap::new();
        for node in root.descendants().filter(Node::is_element) {
            match node.tag_name().name() {
                "metric" => {
                    let data_type = text(&node, "dtype").unwrap_or_default().to_owned();
                    let kind = node.attribute("type").unwrap_or_default().to_owned();
                    let metric = Metric { id: number(&node, "id")?, data_type, kind };
                    anchor.metrics.insert(text(&node, "uniq_name")?.to_owned(), metric);
                }
                "region" => {
                    let call = Call::of(text(&node, "name")?, text(&node, "role").unwrap_or_default());
                    regions.insert(number(&node, "id")?, call);
                }
                // Regions precede the call tree.
                "cnode" => anchor.calls.push(*regions.get(&number(&node, "calleeId")?)?),
                "systemtreenode" => {
                    let host = host(&node).or_else(|| above(&hosts, &node));
                    hosts.insert(node.id(), host);
                }
                "locationgroup" => anchor.process(&node, above(&hosts, &node), &mut locations)?,
                _ => {}
            }
        }
        // Locations must be numbered without gaps.
        let is_whole = locations.keys().copied().eq(0..locations.len() as u32);
        anchor.locations = locations.into_values().collect();
        is_whole.then_some(anchor)
    }

    /// Reads a process with its threads. Groups of other kinds (accelerators) have locations
    /// without a rank.
    fn process(
        &mut self,
        group: &Node<'_, '_>,
        host: Option<String>,
        locations: &mut BTreeMap<u32, Option<u32>>,
    ) -> Option<()> {
        let is_process = text(group, "type").is_none_or(|kind| kind == "process");
        let rank = text(group, "rank").and_then(|rank| rank.parse().ok()).filter(|_| is_process);
        if let Some(rank) = rank {
            self.hosts.insert(rank, host);
        }
        for location in group.children().filter(|node| node.has_tag_name("location")) {
            locations.insert(number(&location, "Id")?, rank);
        }
        Some(())
    }
}

/// The host of the parent in the system tree.
fn above(hosts: &HashMap<NodeId, Option<String>>, node: &Node<'_, '_>) -> Option<String> {
    hosts.get(&node.parent()?.id())?.clone()
}

/// The host name of a system tree node of class `node`, which Score-P names `node NAME`.
fn host(node: &Node<'_, '_>) -> Option<String> {
    let name = text(node, "name").filter(|_| text(node, "class") == Some("node"))?;
    let name = name.strip_prefix("node ").unwrap_or(name);
    (name.len() <= MAX_HOST_BYTES).then(|| printable(name))
}

/// The text of a child element.
fn text<'a>(node: &Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.has_tag_name(name))?.text()
}

fn number(node: &Node<'_, '_>, name: &str) -> Option<u32> {
    node.attribute(name)?.parse().ok()
}
