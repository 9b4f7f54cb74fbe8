//! Evidence about processes from the clear-to-send elements of NCCL.

use super::QueuePair;
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::{Endpoint, Qpn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clear-to-send elements that one queue pair of an NCCL connection carries, from the receiver
/// of data to the sender.
///
/// The elements of one connection alternate between the devices of the receiver. So a connection
/// has one such queue per device, perhaps between other ports. All elements lie in one ring in the
/// sender's memory, with disjoint indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtsQueue {
    /// The receiver's port.
    pub from: Endpoint,
    /// The sender's queue pair.
    pub to: QueuePair,
    /// Index of one element; indices start at 1.
    pub index: u64,
    /// Address of that element in the sender's memory.
    pub address: u64,
    /// Layout of the elements.
    pub release: Release,
    /// Greatest common divisor of the distances between the indices; 0 if there was only one.
    pub step: u64,
    /// Keys of one memory region of the receiver, by device.
    pub r_keys: Vec<u32>,
    /// Address and length of some buffers that the elements name, if the receiver has several
    /// devices.
    pub memory: Vec<(u64, u64)>,
    /// Paths that carry the data for these elements, or for those of the same connection through
    /// other devices.
    pub paths: Vec<CtsPath>,
}

/// A queue pair of the receiver, at the port of the [`CtsQueue`], that carries data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtsPath {
    /// Its queue pair number.
    pub qpn: Qpn,
    /// Address and length of some shares, if none of them matches an element observed at this port.
    pub unmatched: Vec<(u64, u64)>,
}

/// Evidence about processes from NCCL's elements.
#[derive(Clone, Debug, Default)]
pub struct NcclProcesses {
    /// Pairs of queue pairs that belong to one process.
    pub same: Vec<SameProcess>,
    /// NCCL release by queue pair that sends or receives data. A process has one release.
    pub releases: BTreeMap<QueuePair, Release>,
    /// Address of a ring element, by queue pair that sends data.
    pub rings: BTreeMap<QueuePair, u64>,
    /// Queue pairs that send data, each with another one of the same port whose ring has the same
    /// address.
    pub overlapping: BTreeMap<QueuePair, QueuePair>,
}

/// Two queue pairs, perhaps at different ports, of one process: both were used for memory or for a
/// ring of elements that only one process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SameProcess {
    /// One queue pair.
    pub a: QueuePair,
    /// The other queue pair.
    pub b: QueuePair,
    /// They share one ring of elements, so they were in use at the same time, even if their inputs have
    /// different clocks.
    pub shares_ring: bool,
}
