//! Events of ranks as input of [`WRITER`], a program in Python that writes an OTF2 archive with the
//! OTF2 library.
//!
//! In: a plan of events, the events by time, and the rates of ports. Out: a line of JSON with the
//! definitions, and one record of [`RECORD_BYTES`] bytes per event and sample. `writer.py` describes
//! both.

use crate::analysis::port_rates::{PortRates, PortSample};
use crate::analysis::rank_events::{
    EventCommunicator, EventOperation, EventPlan, JobEvent, JobEventKind, RankMessage, RankTransfer,
};
use crate::model::nodes::Nodes;
use crate::model::{JobRank, Profile};
use ibscope_parsers::mpi::MpiOperation;
use serde_json::json;

/// The program that writes the archive. Its argument is the folder of the archive.
pub const WRITER: &str = include_str!("writer.py");

/// Length of the record of an event.
pub const RECORD_BYTES: usize = 56;

/// Kinds of records.
#[derive(Clone, Copy, Default)]
enum RecordKind {
    #[default]
    Send,
    Receive,
    CollectiveBegin,
    CollectiveEnd,
    RequestSend,
    RequestSendEnd,
    RequestReceiveBegin,
    RequestReceive,
    Put,
    Get,
    OneSidedEnd,
    Rates,
}

/// The definitions: the nodes of the ranks, the communicators, and the ports.
#[must_use]
pub fn definitions(profile: &Profile, job: u32, plan: &EventPlan, rates: &PortRates) -> String {
    let nodes = Nodes::of(profile);
    let node = |rank| nodes.names(JobRank { job, rank }).next().unwrap_or("unknown node");
    let communicators = plan.communicators.iter().map(|(communicator, members)| {
        let name = match communicator {
            EventCommunicator::World => "MPI_COMM_WORLD".to_owned(),
            EventCommunicator::Context(context) => format!("context {context}"),
            EventCommunicator::Named(name) => name.clone(),
        };
        json!({ "name": name, "members": members })
    });
    let ports = rates.ports.iter().map(|port| json!({ "name": port.name, "rank": port.rank }));
    let exactness = rates.lower_bound.map(|bound| format!(", a lower bound, because {}", bound.because()));
    let world = plan.communicators.iter().position(|(communicator, _)| *communicator == EventCommunicator::World);
    json!({
        "creator": concat!("ibscope ", env!("CARGO_PKG_VERSION")),
        "ranks": (0..plan.ranks).map(node).collect::<Vec<_>>(),
        "communicators": communicators.collect::<Vec<_>>(),
        "window": world.filter(|_| plan.one_sided > 0),
        "ports": ports.collect::<Vec<_>>(),
        "rate": format!(
            "bytes of all packets on the wire, mean over {} ns{}",
            rates.bin_ns,
            exactness.unwrap_or_default()
        ),
        "operations": MpiOperation::ALL.map(|operation| operation.name().to_ascii_uppercase()),
    })
    .to_string()
}

/// The record of an event, little-endian. `with_requests` is that of the plan.
#[must_use]
pub fn record(event: &JobEvent, with_requests: bool) -> [u8; RECORD_BYTES] {
    let of_rank = EventFields { rank: event.rank, time_ns: event.time_ns.max(0) as u64, ..EventFields::default() };
    let fields = match event.kind {
        JobEventKind::Send(message) => {
            let kind = if with_requests { RecordKind::RequestSend } else { RecordKind::Send };
            of_rank.message(kind, &message, message.dst)
        }
        JobEventKind::Receive(message) => {
            let kind = if with_requests { RecordKind::RequestReceive } else { RecordKind::Receive };
            of_rank.message(kind, &message, message.src)
        }
        JobEventKind::ReceiveBegin(message) => of_rank.message(RecordKind::RequestReceiveBegin, &message, message.src),
        JobEventKind::OneSided(operation) => {
            let kind = if operation.transfer == RankTransfer::Get { RecordKind::Get } else { RecordKind::Put };
            of_rank.message(kind, &operation, operation.dst)
        }
        JobEventKind::End(message) => {
            let is_message = message.transfer == RankTransfer::Message;
            let kind = if is_message { RecordKind::RequestSendEnd } else { RecordKind::OneSidedEnd };
            of_rank.message(kind, &message, message.dst)
        }
        JobEventKind::CollectiveBegin { .. } => EventFields { kind: RecordKind::CollectiveBegin, ..of_rank },
        JobEventKind::CollectiveEnd(own) => of_rank.collective(&own),
    };
    fields.encode()
}

/// The record of a sample of a port, little-endian.
#[must_use]
pub fn rates_record(sample: &PortSample) -> [u8; RECORD_BYTES] {
    EventFields {
        kind: RecordKind::Rates,
        rank: sample.port,
        time_ns: sample.time_ns.max(0) as u64,
        sent: sample.sent_bytes_per_s,
        received: sample.received_bytes_per_s,
        ..EventFields::default()
    }
    .encode()
}

/// The fields of a record.
#[derive(Clone, Copy, Default)]
struct EventFields {
    time_ns: u64,
    sent: u64,
    received: u64,
    number: u64,
    kind: RecordKind,
    rank: u32,
    peer: u32,
    communicator: u32,
    tag: u32,
    operation: u32,
}

impl EventFields {
    const fn message(self, kind: RecordKind, message: &RankMessage, peer: u32) -> Self {
        let RankMessage { communicator, number, bytes, .. } = *message;
        Self { kind, peer, communicator, tag: message.tag as u32, number, sent: bytes, ..self }
    }

    fn collective(self, own: &EventOperation) -> Self {
        // As Score-P counts them: the vector or block of every rank, its own included. Which rank
        // is the root of an operation is not known, nor how the blocks of the others differ.
        let is_counted =
            matches!(own.operation, MpiOperation::Allreduce | MpiOperation::Alltoall | MpiOperation::Allgather);
        let counted = own.bytes.zip(own.ranks).filter(|_| is_counted);
        let bytes = counted.map_or(0, |(bytes, ranks)| bytes.saturating_mul(u64::from(ranks)));
        Self {
            kind: RecordKind::CollectiveEnd,
            communicator: own.communicator,
            operation: own.operation as u32,
            sent: bytes,
            received: bytes,
            ..self
        }
    }

    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        let words = [self.kind as u32, self.rank, self.peer, self.communicator, self.tag, self.operation];
        let numbers = [self.time_ns, self.sent, self.received, self.number];
        let (long, short) = record.split_at_mut(size_of_val(&numbers));
        for (field, number) in long.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        for (field, word) in short.chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::rank_events::{EventOperation, RankMessage};

    /// The bytes of a record: 4 numbers of 8 bytes, then 6 of 4 bytes.
    fn bytes(numbers: [u64; 4], words: [u32; 6]) -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        numbers.chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    #[test]
    fn records_have_the_fields_that_the_writer_reads() {
        let message = RankMessage {
            times_ns: (5, 9),
            number: 1,
            src: 3,
            dst: 4,
            transfer: RankTransfer::Message,
            communicator: 2,
            tag: 7,
            bytes: 0x0001_0203_0405,
        };
        let get = RankMessage { transfer: RankTransfer::Get, ..message };
        let put = RankMessage { transfer: RankTransfer::Put, ..message };
        for (kind, requests, rank, peer, code) in [
            (JobEventKind::Send(message), false, 3, 4, 0),
            (JobEventKind::Receive(message), false, 4, 3, 1),
            (JobEventKind::Send(message), true, 3, 4, 4),
            (JobEventKind::End(message), true, 3, 4, 5),
            (JobEventKind::ReceiveBegin(message), true, 4, 3, 6),
            (JobEventKind::Receive(message), true, 4, 3, 7),
            (JobEventKind::OneSided(put), false, 3, 4, 8),
            (JobEventKind::OneSided(get), false, 3, 4, 9),
            (JobEventKind::End(get), false, 3, 4, 10),
        ] {
            let event = JobEvent { time_ns: 5, rank, kind };
            let expected = bytes([5, 0x0001_0203_0405, 0, 1], [code, rank, peer, 2, 7, 0]);
            assert_eq!(record(&event, requests).as_slice(), expected, "{kind:?}");
        }
        // An Allreduce of 8 bytes by 4 ranks: Score-P counts 32 bytes sent and received by each.
        let own =
            EventOperation { operation: MpiOperation::Allreduce, communicator: 1, ranks: Some(4), bytes: Some(8) };
        let event = JobEvent { time_ns: 6, rank: 0, kind: JobEventKind::CollectiveEnd(own) };
        assert_eq!(record(&event, false).as_slice(), bytes([6, 32, 32, 0], [3, 0, 0, 1, 0, 3]));
        let sample = PortSample { time_ns: 8, port: 2, sent_bytes_per_s: 10, received_bytes_per_s: 20 };
        assert_eq!(rates_record(&sample).as_slice(), bytes([8, 10, 20, 0], [11, 2, 0, 0, 0, 0]));
    }
}
