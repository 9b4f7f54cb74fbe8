//! What a Cube profile says of itself (`anchor.xml`): its metrics, its call tree, and which location is which rank on which node.

use crate::model::printable;
use ibscope_parsers::tools::otf2_print::Collective;
use roxmltree::{Document, Node, NodeId};
use std::collections::{BTreeMap, HashMap};

/// Attributes that an element of Cube has at most, by far, and namespaces that a description declares. The library holds each attribute of an element against
/// every other, and hands the namespaces of an element down to all those below it: with more, time and memory would not be linear.
const MAX_ATTRIBUTES: usize = 64;
const MAX_NAMESPACES: usize = 64;
/// Longest name of a host that is one. Every rank has its own copy.
const MAX_HOST_BYTES: usize = 256;

/// True where a description is no more than the library reads in linear time. Asked before it is parsed.
pub(super) fn is_plain(text: &str) -> bool {
    let mut namespaces = 0;
    // A `<` stands in no value of an attribute. Comments and the like have none.
    text.split('<').skip(1).filter(|tag| !tag.starts_with(['!', '?'])).all(|tag| {
        namespaces += tag.matches("xmlns").count();
        attributes(tag) <= MAX_ATTRIBUTES && namespaces <= MAX_NAMESPACES
    })
}

/// Attributes of a tag, which ends at the first `>` outside of quotes.
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

/// Definitions of a profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Anchor {
    /// What wrote it.
    pub(super) creator: String,
    /// Metrics by name.
    pub(super) metrics: BTreeMap<String, Metric>,
    /// What each node of the call tree calls, in the order of the document. Data of exclusive metrics name nodes by their place in it.
    pub(super) calls: Vec<Call>,
    /// Rank of each location, by its number.
    pub(super) locations: Vec<Option<u32>>,
    /// Host of each rank.
    pub(super) hosts: BTreeMap<u32, Option<String>>,
}

/// A metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    /// Its number, which names its files.
    pub(super) id: u32,
    /// Type of its values, as Cube calls it.
    pub(super) data_type: String,
    /// `EXCLUSIVE`: values are of the node alone, without those that it calls.
    pub(super) kind: String,
}

/// What a node of the call tree is to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It sends one message, unless to `MPI_PROC_NULL`.
    Send,
    /// It receives one.
    Receive,
    /// It does both.
    SendReceive,
    /// It starts persistent requests, of which nothing tells how many and which.
    Start,
    /// It completes requests of any kind: bytes received are of messages and of nonblocking collectives, bytes sent of these alone.
    Complete,
    /// A collective operation.
    Collective(Collective),
    /// One whose bytes count where it is completed.
    Nonblocking(Collective),
    /// Another function of MPI.
    Mpi,
    /// No function of MPI.
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

impl Anchor {
    /// Reads it; `None` where it lacks what a profile must have.
    pub(super) fn read(document: &Document<'_>) -> Option<Self> {
        let mut anchor = Self::default();
        let root = document.root_element();
        let creator =
            root.children().find(|node| node.has_tag_name("attr") && node.attribute("key") == Some("Creator"));
        anchor.creator = creator.and_then(|node| node.attribute("value")).map(printable).unwrap_or_default();
        let mut regions: BTreeMap<u32, Call> = BTreeMap::new();
        let mut locations = BTreeMap::new();
        // Of each node of the system tree the host that it is or is on: looked for once, as a profile may have any number of processes in any depth.
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
                // Regions come before the call tree.
                "cnode" => anchor.calls.push(*regions.get(&number(&node, "calleeId")?)?),
                "systemtreenode" => {
                    let host = host(&node).or_else(|| above(&hosts, &node));
                    hosts.insert(node.id(), host);
                }
                "locationgroup" => anchor.process(&node, above(&hosts, &node), &mut locations)?,
                _ => {}
            }
        }
        // They are numbered without gaps.
        let is_whole = locations.keys().copied().eq(0..locations.len() as u32);
        anchor.locations = locations.into_values().collect();
        is_whole.then_some(anchor)
    }

    /// A process with its threads; those of other kinds (accelerators) have locations too.
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

/// What is known of the node of the system tree that holds this one.
fn above(hosts: &HashMap<NodeId, Option<String>>, node: &Node<'_, '_>) -> Option<String> {
    hosts.get(&node.parent()?.id())?.clone()
}

/// The host that a node of the system tree is, where the tree tells hosts from larger things. Score-P names it `node NAME`.
fn host(node: &Node<'_, '_>) -> Option<String> {
    let name = text(node, "name").filter(|_| text(node, "class") == Some("node"))?;
    let name = name.strip_prefix("node ").unwrap_or(name);
    (name.len() <= MAX_HOST_BYTES).then(|| printable(name))
}

/// The text of a child.
fn text<'a>(node: &Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.has_tag_name(name))?.text()
}

fn number(node: &Node<'_, '_>, name: &str) -> Option<u32> {
    node.attribute(name)?.parse().ok()
}
