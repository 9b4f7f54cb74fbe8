//! Generated jobs with injected incidents: six ranks of MVAPICH2 compute, exchange messages with
//! their neighbors in a ring, and begin the next iteration when the messages of both have arrived. A
//! sink holds each packet at both ports.

use crate::constructed::{BUFFER, R_KEY, data, mvapich2, queue_pair};
use crate::storage::{srp_command, srp_response};
use crate::wire::{WireBuilder, WireQueuePair};
use ibscope_samples::Random;
use std::collections::BTreeMap;
use std::path::PathBuf;

const RANKS: usize = 6;
const ITERATIONS: usize = 60;
/// Whether a rank answers messages or computes while they arrive shows in many iterations only.
const STRAGGLER_ITERATIONS: usize = 150;
/// Time that a rank computes in an iteration, and how much longer by chance.
const COMPUTE_NS: u64 = 4_000_000;
const JITTER_NS: u64 = 200_000;
const TRANSIT_NS: u64 = 5_000;
/// Time until a port acknowledges a packet.
const TURNAROUND_NS: u64 = 20_000;
/// Time until a process that runs MPI reacts to a packet.
const REACTION_NS: u64 = 10_000;
const START_NS: u64 = 1_700_000_000_000_000_000;
const EAGER_BYTES: usize = 1000;
const RENDEZVOUS_BYTES: usize = 4000;
/// Time between two messages of a storm: several follow each other within a round trip.
const STORM_STEP_NS: u64 = 3_000;
const SMALL_BYTES: usize = 64;
const STORAGE: u16 = 0x300;
/// Storage moves data for one half of each of these periods.
const STORAGE_PERIOD_NS: u64 = 40_000_000;
const STORAGE_STEP_NS: u64 = 400_000;

/// What goes wrong in a job. Shares are in percent of the time that a rank computes.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobIncident {
    /// The rank computes longer in each iteration.
    Straggler { rank: usize, percent: u64 },
    /// The first half of the ranks computes longer.
    Imbalance { percent: u64 },
    /// The rank posts its receives so much later than it could: it computes first.
    LateReceiver { rank: usize, percent: u64 },
    /// All ranks do so.
    Stall { percent: u64 },
    /// All ranks exchange large messages and are not late.
    Rendezvous,
    /// The rank sends small messages to the rank at the other side of the ring, for this share of
    /// the time, one after the other (`is_storm`) or each after the answer to the last.
    SmallMessages { rank: usize, percent: u64, is_storm: bool },
    /// Storage moves data at the port of the rank, and acknowledgements there take so many times
    /// longer meanwhile.
    Storage { rank: usize, factor: u64 },
}

/// A message in one packet.
#[derive(Clone, Debug)]
struct JobMessage {
    time_ns: u64,
    /// LIDs and queue pairs of sender and receiver.
    from: (u16, u32),
    to: (u16, u32),
    content: JobContent,
    turnaround_ns: u64,
}

#[derive(Clone, Debug)]
enum JobContent {
    Send(Vec<u8>),
    Write(Vec<u8>),
}

/// A packet at an observation point.
#[derive(Clone, Debug)]
enum JobPacket {
    Message(usize, u32),
    Acknowledge(usize, u32),
}

pub(super) struct JobScene {
    random: Random,
    incidents: Vec<JobIncident>,
    messages: Vec<JobMessage>,
    /// MVAPICH2 counts the messages of a sender to a receiver.
    sequences: BTreeMap<(usize, usize), u16>,
}

impl JobScene {
    /// A capture of a job with these incidents.
    pub(super) fn new(incidents: &[JobIncident], seed: u64) -> Self {
        let mut scene = Self {
            random: Random::new(seed),
            incidents: incidents.to_vec(),
            messages: Vec::new(),
            sequences: BTreeMap::new(),
        };
        let end_ns = scene.iterate();
        for incident in incidents {
            match *incident {
                JobIncident::SmallMessages { rank, percent, is_storm } => scene.small(rank, percent, is_storm, end_ns),
                JobIncident::Storage { rank, .. } => scene.storage(rank, end_ns),
                _ => {}
            }
        }
        scene
    }

    fn find<T>(&self, of: impl Fn(&JobIncident) -> Option<T>) -> Option<T> {
        self.incidents.iter().find_map(of)
    }

    /// Time that a rank computes beyond the others.
    fn extra_ns(&self, rank: usize) -> u64 {
        let percent = self.find(|incident| match *incident {
            JobIncident::Straggler { rank: late, percent } if late == rank => Some(percent),
            JobIncident::Imbalance { percent } if rank < RANKS / 2 => Some(percent),
            _ => None,
        });
        COMPUTE_NS * percent.unwrap_or(0) / 100
    }

    /// Time after its own sends at which a rank posts its receives; `None` for eager messages.
    fn post_ns(&self, rank: usize) -> Option<u64> {
        let percent = self.find(|incident| match *incident {
            JobIncident::LateReceiver { rank: late, percent } => Some(if late == rank { percent } else { 0 }),
            JobIncident::Stall { percent } => Some(percent),
            JobIncident::Rendezvous => Some(0),
            _ => None,
        });
        percent.map(|percent| COMPUTE_NS * percent / 100)
    }

    /// Runs the iterations; returns their end.
    fn iterate(&mut self) -> u64 {
        let mut ready_ns = [START_NS; RANKS];
        let has_straggler = self.find(|incident| matches!(incident, JobIncident::Straggler { .. }).then_some(()));
        for _ in 0..has_straggler.map_or(ITERATIONS, |()| STRAGGLER_ITERATIONS) {
            let sends_ns: Vec<u64> = (0..RANKS)
                .map(|rank| ready_ns[rank] + COMPUTE_NS + self.extra_ns(rank) + self.random.below(JITTER_NS))
                .collect();
            let mut next_ns: Vec<u64> = sends_ns.clone();
            for src in 0..RANKS {
                for dst in [(src + 1) % RANKS, (src + RANKS - 1) % RANKS] {
                    let arrives_ns = if let Some(post_ns) = self.post_ns(dst) {
                        self.rendezvous((src, dst), sends_ns[src], sends_ns[dst] + post_ns);
                        // The receiver computes while it does not receive.
                        sends_ns[src] + 2 * TRANSIT_NS + REACTION_NS
                    } else {
                        self.eager((src, dst), sends_ns[src])
                    };
                    next_ns[dst] = next_ns[dst].max(arrives_ns);
                }
            }
            ready_ns = std::array::from_fn(|rank| next_ns[rank] + REACTION_NS);
        }
        ready_ns.into_iter().max().unwrap_or(START_NS)
    }

    fn sequence(&mut self, ends: (usize, usize)) -> u16 {
        let next = self.sequences.entry(ends).or_default();
        let sequence = *next;
        *next = next.wrapping_add(1);
        sequence
    }

    fn add(&mut self, (src, dst): (usize, usize), time_ns: u64, content: JobContent) {
        let factor = self.find(|incident| match *incident {
            JobIncident::Storage { rank, factor } if (rank == src || rank == dst) && is_storage_time(time_ns) => {
                Some(factor)
            }
            _ => None,
        });
        let turnaround_ns = factor.unwrap_or(1) * (TURNAROUND_NS + self.random.below(TURNAROUND_NS / 4));
        let end = |own: usize, other: usize| (lid(own), queue_pair(own, other));
        self.messages.push(JobMessage { time_ns, from: end(src, dst), to: end(dst, src), content, turnaround_ns });
    }

    /// An eager message; returns its arrival.
    fn eager(&mut self, ends: (usize, usize), time_ns: u64) -> u64 {
        let sequence = self.sequence(ends);
        let header = mvapich2::envelope(mvapich2::EAGER_SEND, sequence, (ends.0 as u16, 7, 0), EAGER_BYTES);
        self.add(ends, time_ns, JobContent::Send(header.then(&data(EAGER_BYTES))));
        time_ns + TRANSIT_NS
    }

    /// A rendezvous: ready-to-send, clear-to-send once the receive is posted, data, completion.
    fn rendezvous(&mut self, (src, dst): (usize, usize), time_ns: u64, posted_ns: u64) {
        let sequence = self.sequence((src, dst));
        let request = mvapich2::ready_to_send(sequence, (src as u16, 7, 0), RENDEZVOUS_BYTES);
        self.add((src, dst), time_ns, JobContent::Send(request));
        let granted_ns = posted_ns.max(time_ns + TRANSIT_NS) + REACTION_NS;
        let sequence = self.sequence((dst, src));
        self.add((dst, src), granted_ns, JobContent::Send(mvapich2::clear_to_send(sequence, RENDEZVOUS_BYTES)));
        let data_ns = granted_ns + TRANSIT_NS + REACTION_NS;
        self.add((src, dst), data_ns, JobContent::Write(data(RENDEZVOUS_BYTES)));
        let sequence = self.sequence((src, dst));
        self.add((src, dst), data_ns + 1_000, JobContent::Send(mvapich2::finish(sequence)));
    }

    fn small(&mut self, src: usize, percent: u64, is_storm: bool, end_ns: u64) {
        let ends = (src, (src + RANKS / 2) % RANKS);
        let step_ns = if is_storm { STORM_STEP_NS } else { 2 * (TURNAROUND_NS + 2 * TRANSIT_NS) };
        for step in 0..(end_ns - START_NS) * percent / 100 / step_ns {
            let sequence = self.sequence(ends);
            let header = mvapich2::envelope(mvapich2::EAGER_SEND, sequence, (src as u16, 9, 0), SMALL_BYTES);
            self.add(ends, START_NS + step * step_ns, JobContent::Send(header.then(&data(SMALL_BYTES))));
        }
    }

    /// SRP READs of 4 KiB by the node of a rank, in bursts.
    fn storage(&mut self, rank: usize, end_ns: u64) {
        let (client, server) = ((lid(rank), 0x900), (STORAGE, 0x901));
        let times = (START_NS..end_ns).step_by(STORAGE_STEP_NS as usize).filter(|time_ns| is_storage_time(*time_ns));
        for (tag, time_ns) in (0..).zip(times) {
            let mut add = |time_ns, from, to, content| {
                self.messages.push(JobMessage { time_ns, from, to, content, turnaround_ns: TURNAROUND_NS });
            };
            add(time_ns, client, server, JobContent::Send(srp_command(tag, 0x28, false, 4096)));
            add(time_ns + 50_000, server, client, JobContent::Write(vec![0xA5; 4096]));
            add(time_ns + 60_000, server, client, JobContent::Send(srp_response(tag, 0, 0, [0, 0])));
        }
    }

    /// Writes the capture.
    pub(super) fn write(mut self) -> WireBuilder {
        self.messages.sort_by_key(|message| message.time_ns);
        let mut packets: BTreeMap<(u64, usize), JobPacket> = BTreeMap::new();
        let mut queues: BTreeMap<_, (u32, u64)> = BTreeMap::new();
        for (index, message) in self.messages.iter().enumerate() {
            let (psn, acknowledged_ns) = queues.entry((message.from, message.to)).or_default();
            let arrives_ns = message.time_ns + TRANSIT_NS;
            // A port acknowledges in order.
            *acknowledged_ns = (*acknowledged_ns + 1).max(arrives_ns + message.turnaround_ns);
            for (time_ns, packet) in [
                (message.time_ns, JobPacket::Message(index, *psn)),
                (arrives_ns, JobPacket::Message(index, *psn)),
                (*acknowledged_ns, JobPacket::Acknowledge(index, *psn)),
                (*acknowledged_ns + TRANSIT_NS, JobPacket::Acknowledge(index, *psn)),
            ] {
                packets.insert((time_ns, packets.len()), packet);
            }
            *psn += 1;
        }
        let mut wire = WireBuilder::new();
        for ((time_ns, _), packet) in packets {
            self.put(wire.at(time_ns as i64), &packet);
        }
        wire
    }

    fn put(&self, wire: &mut WireBuilder, packet: &JobPacket) {
        let (JobPacket::Message(index, psn) | JobPacket::Acknowledge(index, psn)) = packet;
        let message = &self.messages[*index];
        let (from, to) = (message.from, message.to);
        if matches!(packet, JobPacket::Acknowledge(..)) {
            let mut back = WireQueuePair::new(to.0, from.0, from.1);
            return back.ack(wire, &WireQueuePair::completed_up_to(*psn, *psn + 1));
        }
        let mut queue = WireQueuePair::new(from.0, to.0, to.1);
        queue.psn = *psn;
        match &message.content {
            JobContent::Send(payload) => queue.send(wire, payload),
            JobContent::Write(payload) => queue.write(wire, BUFFER, R_KEY, payload),
        }
    }
}

/// The capture of a job with these incidents.
pub(super) fn capture(incidents: &[JobIncident], seed: u64) -> (WireBuilder, PathBuf) {
    let mut wire = JobScene::new(incidents, seed).write();
    let path = wire.file();
    (wire, path)
}

fn lid(rank: usize) -> u16 {
    0x11 + rank as u16
}

const fn is_storage_time(time_ns: u64) -> bool {
    (time_ns - START_NS) % STORAGE_PERIOD_NS < STORAGE_PERIOD_NS / 2
}
