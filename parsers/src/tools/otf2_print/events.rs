//! Lines of events.

use super::words::{last, last_reference, named, number, word};
use super::{Collective, Event, Malformed, Message, What};

/// Reads a line of events; `None` for lines that are none: headings, and attributes of the event before.
pub fn event(line: &str) -> Result<Option<Event>, Malformed> {
    let (kind, rest) = word(line);
    if kind.is_empty()
        || kind.len() == line.len()
        || !kind.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    {
        return Ok(None);
    }
    let (location, rest) = word(rest);
    let (time, attributes) = word(rest);
    let (Ok(location), Ok(time)) = (location.parse(), time.parse()) else {
        // Headings and attributes of the event before look like that too.
        return if is_of_interest(kind) { Err(Malformed) } else { Ok(None) };
    };
    let what = match kind {
        "MPI_SEND" | "MPI_ISEND" => message(attributes, "Receiver: ").map(What::Send),
        "MPI_RECV" | "MPI_IRECV" => message(attributes, "Sender: ").map(What::Receive),
        "MPI_COLLECTIVE_END" | "NON_BLOCKING_COLLECTIVE_COMPLETE" => collective(attributes),
        "RMA_PUT" => {
            rma(attributes).map(|(window, remote, bytes)| What::Rma { window, remote, sent: bytes, received: 0 })
        }
        "RMA_GET" => {
            rma(attributes).map(|(window, remote, bytes)| What::Rma { window, remote, sent: 0, received: bytes })
        }
        "RMA_ATOMIC" => atomic(attributes),
        "BUFFER_FLUSH" => Some(What::Flush),
        _ => Some(What::Other),
    };
    what.map(|what| Some(Event { location, time, what })).ok_or(Malformed)
}

fn is_of_interest(kind: &str) -> bool {
    ["MPI_SEND", "MPI_ISEND", "MPI_RECV", "MPI_IRECV", "MPI_COLLECTIVE_END", "NON_BLOCKING_COLLECTIVE_COMPLETE"]
        .contains(&kind)
        || ["RMA_PUT", "RMA_GET", "RMA_ATOMIC"].contains(&kind)
}

fn message(attributes: &str, peer: &str) -> Option<Message> {
    let (peer, _) = number(attributes.strip_prefix(peer)?)?;
    let attributes = match last::<u64>(attributes, ", Request: ") {
        Some((attributes, _)) => attributes,
        None => attributes,
    };
    let (attributes, bytes) = last(attributes, ", Length: ")?;
    let (attributes, tag) = last(attributes, ", Tag: ")?;
    Some(Message { peer, communicator: last_reference(attributes)?, tag, bytes })
}

fn collective(attributes: &str) -> Option<What> {
    let attributes = last::<u64>(attributes, ", Request: ").map_or(attributes, |(attributes, _)| attributes);
    let (attributes, received) = last(attributes, ", Received: ")?;
    let (attributes, sent) = last(attributes, ", Sent: ")?;
    let at = attributes.rfind(", Root: ")?;
    let root = number(&attributes[at + ", Root: ".len()..]).map(|(root, _)| root);
    let (operation, communicator) = attributes[..at].strip_prefix("Operation: ")?.split_once(", Communicator: ")?;
    Some(What::Collective {
        operation: Collective::parse(operation),
        communicator: last_reference(communicator)?,
        root,
        sent,
        received,
    })
}

/// `Window: "NAME" <REFERENCE>, Remote: RANK ..., Bytes: BYTES, Matching: ID`.
fn rma(attributes: &str) -> Option<(u64, u32, u64)> {
    let (attributes, _) = last::<u64>(attributes, ", Matching: ")?;
    let (attributes, bytes) = last(attributes, ", Bytes: ")?;
    let (window, remote) = target(attributes)?;
    Some((window, remote, bytes))
}

fn atomic(attributes: &str) -> Option<What> {
    let (attributes, _) = last::<u64>(attributes, ", Matching: ")?;
    let (attributes, received) = last(attributes, ", Received: ")?;
    let (attributes, sent) = last(attributes, ", Sent: ")?;
    let (window, remote) = target(attributes)?;
    Some(What::Rma { window, remote, sent, received })
}

fn target(attributes: &str) -> Option<(u64, u32)> {
    let (_, window, rest) = named(attributes.strip_prefix("Window: ")?, ", Remote: ")?;
    Some((window, number(rest)?.0))
}
