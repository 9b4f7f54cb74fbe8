//! Parses the events of `otf2-print`.

use super::words::{last_number, last_reference, number, split_at_name, word};
use super::{Collective, MalformedLine, Otf2Event, Otf2EventKind, Otf2Message};

/// Parses an event line; `None` if the line is a heading or an attribute of the previous event.
pub fn event(line: &str) -> Result<Option<Otf2Event>, MalformedLine> {
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
        // Headings and attributes of the previous event begin like this, too.
        return if is_of_interest(kind) { Err(MalformedLine) } else { Ok(None) };
    };
    let what = match kind {
        "MPI_SEND" | "MPI_ISEND" => message(attributes, "Receiver: ").map(Otf2EventKind::Send),
        "MPI_RECV" | "MPI_IRECV" => message(attributes, "Sender: ").map(Otf2EventKind::Receive),
        "MPI_COLLECTIVE_BEGIN" => Some(Otf2EventKind::CollectiveBegin { request: None }),
        "NON_BLOCKING_COLLECTIVE_REQUEST" => Some(match last_number(attributes, "Request: ") {
            Some((_, request)) => Otf2EventKind::CollectiveBegin { request: Some(request) },
            None => Otf2EventKind::Other,
        }),
        "MPI_COLLECTIVE_END" | "NON_BLOCKING_COLLECTIVE_COMPLETE" => collective(attributes),
        "RMA_PUT" => rma(attributes).map(|(window, remote, bytes)| Otf2EventKind::Rma {
            window,
            remote,
            sent: bytes,
            received: 0,
        }),
        "RMA_GET" => rma(attributes).map(|(window, remote, bytes)| Otf2EventKind::Rma {
            window,
            remote,
            sent: 0,
            received: bytes,
        }),
        "RMA_ATOMIC" => atomic(attributes),
        "BUFFER_FLUSH" => Some(Otf2EventKind::Flush),
        _ => Some(Otf2EventKind::Other),
    };
    what.map(|what| Some(Otf2Event { location, time, what })).ok_or(MalformedLine)
}

fn is_of_interest(kind: &str) -> bool {
    ["MPI_SEND", "MPI_ISEND", "MPI_RECV", "MPI_IRECV", "MPI_COLLECTIVE_END", "NON_BLOCKING_COLLECTIVE_COMPLETE"]
        .contains(&kind)
        || ["RMA_PUT", "RMA_GET", "RMA_ATOMIC"].contains(&kind)
}

fn message(attributes: &str, peer: &str) -> Option<Otf2Message> {
    let (peer, _) = number(attributes.strip_prefix(peer)?)?;
    let attributes = match last_number::<u64>(attributes, ", Request: ") {
        Some((attributes, _)) => attributes,
        None => attributes,
    };
    let (attributes, bytes) = last_number(attributes, ", Length: ")?;
    let (attributes, tag) = last_number(attributes, ", Tag: ")?;
    Some(Otf2Message { peer, communicator: last_reference(attributes)?, tag, bytes })
}

fn collective(attributes: &str) -> Option<Otf2EventKind> {
    let (attributes, request) = match last_number(attributes, ", Request: ") {
        Some((attributes, request)) => (attributes, Some(request)),
        None => (attributes, None),
    };
    let (attributes, received) = last_number(attributes, ", Received: ")?;
    let (attributes, sent) = last_number(attributes, ", Sent: ")?;
    let at = attributes.rfind(", Root: ")?;
    let root = number(&attributes[at + ", Root: ".len()..]).map(|(root, _)| root);
    let (operation, communicator) = attributes[..at].strip_prefix("Operation: ")?.split_once(", Communicator: ")?;
    Some(Otf2EventKind::Collective {
        operation: Collective::parse(operation),
        communicator: last_reference(communicator)?,
        root,
        sent,
        received,
        request,
    })
}

/// `Window: "NAME" <REFERENCE>, Remote: RANK ..., Bytes: BYTES, Matching: ID`.
fn rma(attributes: &str) -> Option<(u64, u32, u64)> {
    let (attributes, _) = last_number::<u64>(attributes, ", Matching: ")?;
    let (attributes, bytes) = last_number(attributes, ", Bytes: ")?;
    let (window, remote) = target(attributes)?;
    Some((window, remote, bytes))
}

fn atomic(attributes: &str) -> Option<Otf2EventKind> {
    let (attributes, _) = last_number::<u64>(attributes, ", Matching: ")?;
    let (attributes, received) = last_number(attributes, ", Received: ")?;
    let (attributes, sent) = last_number(attributes, ", Sent: ")?;
    let (window, remote) = target(attributes)?;
    Some(Otf2EventKind::Rma { window, remote, sent, received })
}

fn target(attributes: &str) -> Option<(u64, u32)> {
    let (_, window, rest) = split_at_name(attributes.strip_prefix("Window: ")?, ", Remote: ")?;
    Some((window, number(rest)?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collective_calls_begin_and_end_with_their_request() {
        // As otf2-print 3.0 writes them.
        let kind = |line: &str| event(line).expect("well-formed").map(|event| event.what);
        assert_eq!(
            kind("MPI_COLLECTIVE_BEGIN                           0             12850769  "),
            Some(Otf2EventKind::CollectiveBegin { request: None })
        );
        assert_eq!(
            kind("NON_BLOCKING_COLLECTIVE_REQUEST                0                   10  Request: 7"),
            Some(Otf2EventKind::CollectiveBegin { request: Some(7) })
        );
        let end = "Operation: ALLREDUCE, Communicator: \"MPI_COMM_WORLD\" <0>, Root: NONE, Sent: 8, Received: 16";
        for (kind_of_line, more, request) in
            [("MPI_COLLECTIVE_END", "", None), ("NON_BLOCKING_COLLECTIVE_COMPLETE", ", Request: 7", Some(7))]
        {
            let line = alloc::format!("{kind_of_line}   0   20  {end}{more}");
            let expected = Otf2EventKind::Collective {
                operation: Collective::Allreduce,
                communicator: 0,
                root: None,
                sent: 8,
                received: 16,
                request,
            };
            assert_eq!(kind(&line), Some(expected), "{line}");
        }
    }
}
