//! Ranks that run the programs of MPI libraries, for tests: each rank sends and receives as the
//! sources of the libraries define it, and the simulator gives the messages their times.

use super::split::CollectiveMessage;
use ibscope_parsers::mpi::MpiOperation;
use std::collections::{BTreeMap, VecDeque};

/// A step of a rank's program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Sends this many bytes with the tag of an operation.
    Send(u32, u64, MpiOperation),
    /// Waits for the next message of a rank.
    Receive(u32),
    /// Computes for this many nanoseconds.
    Compute(i64),
}

/// The programs of all ranks.
pub(super) struct Programs {
    /// Actions by rank.
    pub ranks: Vec<Vec<Action>>,
}

/// Time of a send, and the shortest and longest time on the way, in nanoseconds.
const SEND_NS: i64 = 300;
const LATENCY_NS: (i64, i64) = (1000, 1999);

impl Programs {
    pub(super) fn new(size: u32) -> Self {
        Self { ranks: vec![Vec::new(); size as usize] }
    }

    /// Appends an operation: `program(rank)` are the actions of a rank.
    pub(super) fn call(&mut self, program: impl Fn(u32) -> Vec<Action>) {
        for (rank, actions) in (0..).zip(&mut self.ranks) {
            actions.extend(program(rank));
        }
    }

    /// Runs the programs. The messages are sorted by time.
    pub(super) fn run(&self) -> Vec<CollectiveMessage> {
        let mut queues: Vec<VecDeque<Action>> =
            self.ranks.iter().map(|actions| actions.iter().copied().collect()).collect();
        let mut clocks = vec![0i64; queues.len()];
        let mut arrivals: BTreeMap<(u32, u32), VecDeque<i64>> = BTreeMap::new();
        let mut last_arrival: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        let mut messages = Vec::new();
        let mut seed = 12345u32;
        let mut jitter = move || {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
            i64::from(seed >> 16) % (LATENCY_NS.1 - LATENCY_NS.0)
        };
        loop {
            let mut is_idle = true;
            for rank in 0..queues.len() {
                while let Some(action) = queues[rank].front().copied() {
                    match action {
                        Action::Compute(time_ns) => clocks[rank] += time_ns,
                        Action::Send(dst, bytes, operation) => {
                            clocks[rank] += SEND_NS;
                            let pair = (rank as u32, dst);
                            let start_ns = clocks[rank];
                            // Messages between two ranks do not overtake each other.
                            let last = last_arrival.entry(pair).or_insert(0);
                            *last = (start_ns + LATENCY_NS.0 + jitter()).max(*last + 1);
                            arrivals.entry(pair).or_default().push_back(*last);
                            let times_ns = (start_ns, start_ns + bytes as i64 / 1000);
                            let (src, tag, is_first) = (rank as u32, 0, false);
                            messages.push(CollectiveMessage {
                                src,
                                dst,
                                operation,
                                tag,
                                bytes: Some(bytes),
                                times_ns,
                                is_first,
                            });
                        }
                        Action::Receive(src) => {
                            let queue = arrivals.entry((src, rank as u32)).or_default();
                            let Some(time_ns) = queue.pop_front() else { break };
                            clocks[rank] = clocks[rank].max(time_ns);
                        }
                    }
                    queues[rank].pop_front();
                    is_idle = false;
                }
            }
            if is_idle {
                break;
            }
        }
        assert!(queues.iter().all(VecDeque::is_empty), "the programs of the test deadlock: {queues:?}");
        messages.sort_by_key(|message| (message.times_ns, message.src, message.dst));
        messages
    }
}
