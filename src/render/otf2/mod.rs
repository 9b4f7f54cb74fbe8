//! Events of ranks as input of [`WRITER`], a program in Python that writes an OTF2 archive with the
//! OTF2 library.
//!
//! In: a plan of events, and the events by time. Out: a line of JSON with the definitions, and one
//! record of [`RECORD_BYTES`] bytes per event. `writer.py` describes both.

use crate::analysis::rank_events::{EventCommunicator, EventPlan, JobEvent, JobEventKind};
use crate::model::nodes::Nodes;
use crate::model::{JobRank, Profile};
use ibscope_parsers::mpi::MpiOperation;
use serde_json::json;

/// The program that writes the archive. Its argument is the folder of the archive.
pub const WRITER: &str = include_str!("writer.py");

/// Length of the record of an event.
pub const RECORD_BYTES: usize = 48;

/// Kinds of records.
const SEND: u32 = 0;
const RECEIVE: u32 = 1;
const COLLECTIVE_BEGIN: u32 = 2;
const COLLECTIVE_END: u32 = 3;

/// The definitions: the nodes of the ranks, and the communicators.
#[must_use]
pub fn definitions(profile: &Profile, job: u32, plan: &EventPlan) -> String {
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
    json!({
        "creator": concat!("ibscope ", env!("CARGO_PKG_VERSION")),
        "ranks": (0..plan.ranks).map(node).collect::<Vec<_>>(),
        "communicators": communicators.collect::<Vec<_>>(),
        "operations": MpiOperation::ALL.map(|operation| operation.name().to_ascii_uppercase()),
    })
    .to_string()
}

/// The record of an event, little-endian.
#[must_use]
pub fn record(event: &JobEvent) -> [u8; RECORD_BYTES] {
    let mut fields = EventFields { rank: event.rank, time_ns: event.time_ns.max(0) as u64, ..EventFields::default() };
    match event.kind {
        JobEventKind::Send(message) | JobEventKind::Receive(message) => {
            let is_send = matches!(event.kind, JobEventKind::Send(_));
            (fields.kind, fields.peer) = if is_send { (SEND, message.dst) } else { (RECEIVE, message.src) };
            fields.communicator = message.communicator;
            fields.tag = message.tag as u32;
            fields.sent_bytes = message.bytes;
        }
        JobEventKind::CollectiveBegin { .. } => fields.kind = COLLECTIVE_BEGIN,
        JobEventKind::CollectiveEnd(own) => {
            fields.kind = COLLECTIVE_END;
            fields.communicator = own.communicator;
            fields.operation = own.operation as u32;
            // As Score-P counts them: the vector or block of every rank, its own included. Which rank
            // is the root of an operation is not known, nor how the blocks of the others differ.
            let is_counted =
                matches!(own.operation, MpiOperation::Allreduce | MpiOperation::Alltoall | MpiOperation::Allgather);
            let counted = own.bytes.zip(own.ranks).filter(|_| is_counted);
            let bytes = counted.map(|(bytes, ranks)| bytes.saturating_mul(u64::from(ranks)));
            fields.sent_bytes = bytes.unwrap_or(0);
            fields.received_bytes = fields.sent_bytes;
        }
    }
    fields.encode()
}

/// The fields of a record.
#[derive(Default)]
struct EventFields {
    kind: u32,
    rank: u32,
    time_ns: u64,
    peer: u32,
    communicator: u32,
    tag: u32,
    operation: u32,
    sent_bytes: u64,
    received_bytes: u64,
}

impl EventFields {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        let words = [self.kind, self.rank, self.peer, self.communicator, self.tag, self.operation];
        let numbers = [self.time_ns, self.sent_bytes, self.received_bytes];
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

    #[test]
    fn records_have_the_fields_that_the_writer_reads() {
        let message = RankMessage {
            times_ns: (5, 9),
            number: 1,
            src: 3,
            dst: 4,
            communicator: 2,
            tag: 7,
            bytes: 0x0001_0203_0405,
        };
        let event = JobEvent { time_ns: 5, rank: 3, kind: JobEventKind::Send(message) };
        let mut expected = Vec::new();
        [5_u64, 0x0001_0203_0405, 0].iter().for_each(|number| expected.extend(number.to_le_bytes()));
        [0_u32, 3, 4, 2, 7, 0].iter().for_each(|word| expected.extend(word.to_le_bytes()));
        assert_eq!(record(&event).as_slice(), expected);
        // An Allreduce of 8 bytes by 4 ranks: Score-P counts 32 bytes sent and received by each.
        let own =
            EventOperation { operation: MpiOperation::Allreduce, communicator: 1, ranks: Some(4), bytes: Some(8) };
        let event = JobEvent { time_ns: 6, rank: 0, kind: JobEventKind::CollectiveEnd(own) };
        let mut expected = Vec::new();
        [6_u64, 32, 32].iter().for_each(|number| expected.extend(number.to_le_bytes()));
        [3_u32, 0, 0, 1, 0, 3].iter().for_each(|word| expected.extend(word.to_le_bytes()));
        assert_eq!(record(&event).as_slice(), expected);
    }
}
