//! From the first packet of a message to the length of the whole: MPI messages of one connection.
//!
//! The envelope stands in the First or Only packet. Where it does not state the length, the Last packet tells it: all
//! packets before it carry a full path MTU, so the length is `(last PSN - first PSN) x MTU + last payload`.

use super::ledger::Ledger;
use crate::model::{MpiMessage, PacketRecord, Start};
use ibscope_parsers::ib::{ExtHeaders, Opcode, Service};
use ibscope_parsers::mpi::{self, Carrier, Head, Length};

/// Messages of one connection that can wait for their Last packet at a time. A sender finishes one message before it
/// starts the next, so more than one waits only where packets were lost.
const MAX_OPEN: usize = 16;
/// UCX endpoints whose datagram numbers are remembered per pair of UD queue pairs.
const MAX_UD_ENDPOINTS: usize = 16;

/// Messages of a connection whose end has not been seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads {
    open: Vec<Open>,
    /// UCX repeats datagrams under new PSNs: its own numbers, by receiver endpoint.
    datagrams: Vec<(u32, Ledger)>,
    /// Messages given up because too many were open.
    pub(super) abandoned: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    first_number: i64,
    mtu_bytes: u64,
    message: MpiMessage,
}

impl Heads {
    /// Looks at a request that has been seen for the first time. Gives what its start showed, if it is one, and the MPI message
    /// that is complete with it.
    pub(super) fn request(
        &mut self,
        packet: &PacketRecord,
        batch_bytes: &[u8],
        number: i64,
    ) -> (Option<Start>, Option<MpiMessage>) {
        let opcode = packet.opcode();
        let Some(carrier) = carrier(packet, opcode, batch_bytes) else { return (None, None) };
        let whole = opcode.is_only();
        let Some(head) = mpi::recognise(carrier, packet.payload(batch_bytes), whole) else {
            // An RDMA WRITE carries plain data as a rule: that it shows no envelope says nothing about the library.
            let start = (!matches!(carrier, Carrier::Write(_))).then_some(Start::Unknown);
            return (start, None);
        };
        if self.is_repeated(&head) {
            return (Some(Start::Repeated), None);
        }
        let start = Some(Start::Recognised(head.form, head.envelope));
        let Some(envelope) = head.envelope else { return (start, None) };
        let payload_bytes = u64::from(packet.payload_bytes);
        let mut message = MpiMessage { form: head.form, envelope, mpi_bytes: 0, time_ns: packet.time_ns };
        if whole || matches!(envelope.length, Length::Stated(_)) {
            message.mpi_bytes = envelope.length.of(payload_bytes);
            return (start, Some(message));
        }
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
            self.abandoned += 1;
        }
        self.open.push(Open { first_number: number, mtu_bytes: payload_bytes, message });
        (start, None)
    }

    /// Looks at the Last packet of a SEND, repeated or not: the message that waits for it is complete.
    pub(super) fn last(&mut self, packet: &PacketRecord, number: i64) -> Option<MpiMessage> {
        let (index, open) = self
            .open
            .iter()
            .enumerate()
            .filter(|(_, open)| open.first_number < number)
            .max_by_key(|(_, open)| open.first_number)?;
        let full_packets = u64::try_from(number - open.first_number).ok()?;
        let mut message = open.message;
        message.mpi_bytes = message.envelope.length.of(full_packets * open.mtu_bytes + u64::from(packet.payload_bytes));
        self.open.remove(index);
        Some(message)
    }

    /// Messages that were begun and not ended.
    pub(super) fn incomplete(&self) -> u64 {
        self.abandoned + self.open.len() as u64
    }

    fn is_repeated(&mut self, head: &Head) -> bool {
        let Some(datagram) = head.datagram else { return false };
        if let Some((_, ledger)) = self.datagrams.iter_mut().find(|(endpoint, _)| *endpoint == datagram.endpoint) {
            return ledger.note_u16(datagram.sequence) > 1;
        }
        if self.datagrams.len() == MAX_UD_ENDPOINTS {
            self.datagrams.remove(0);
        }
        let mut ledger = Ledger::default();
        ledger.note_u16(datagram.sequence);
        self.datagrams.push((datagram.endpoint, ledger));
        false
    }
}

/// How the packet starts a message, if it does.
fn carrier(packet: &PacketRecord, opcode: Opcode, batch_bytes: &[u8]) -> Option<Carrier> {
    if !(opcode.is_first() || opcode.is_only()) {
        return None;
    }
    if opcode.service() == Service::Ud {
        let at = (packet.payload_offset as usize).checked_sub(usize::from(opcode.ext_bytes()))?;
        let headers = ExtHeaders::parse(opcode, batch_bytes.get(at..)?).ok()?;
        return Some(Carrier::Datagram(headers.deth?.q_key));
    }
    if opcode.is_write() {
        return Some(Carrier::Write(packet.extension));
    }
    opcode.is_send().then_some(Carrier::Send)
}
