//! The frames that a record holds as samples, as records of their own.
//!
//! In: a record, and the tunnels around its content. Out: its samples of sFlow or psample, and each
//! sampled frame as a record. Invariant: the frames lie within the bytes of the record.

use ibscope_parsers::ParseError;
use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::link::TunnelPath;
use ibscope_parsers::sampled::{self, SampleHeader, SampledFrame, SflowDatagram, SflowSample, UnreadSample};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A sample of packets.
pub(super) enum SampledRecord<'a> {
    Frame(SampledFrame<'a>),
    Unread(UnreadSample),
    /// The rest of the datagram cannot be read.
    Failed(ParseError),
}

/// The samples of packets in a netlink record of psample, or in the sFlow datagram at the end of this
/// path. None if there are none, or if the port has another protocol.
pub(super) fn of_record<'a>(record: &Record<'a>, path: &TunnelPath) -> impl Iterator<Item = SampledRecord<'a>> {
    let psample = if record.link_type == LinkType::NETLINK { sampled::psample(record.data) } else { None };
    let sflow = datagram(record, path).into_iter().flatten().filter_map(|sample| match sample {
        Ok(SflowSample::Frame(frame)) => Some(SampledRecord::Frame(frame)),
        Ok(SflowSample::Counters) => None,
        Ok(SflowSample::Unread(what)) => Some(SampledRecord::Unread(what)),
        Err(error) => Some(SampledRecord::Failed(error)),
    });
    psample.map(SampledRecord::Frame).into_iter().chain(sflow)
}

fn datagram<'a>(record: &Record<'a>, path: &TunnelPath) -> Option<SflowDatagram<'a>> {
    let (start, end) = path.samples()?;
    SflowDatagram::parse(record.data.get(start..end.min(record.data.len()))?).ok()
}

/// A hash of a sample: of its source and number, the size of its pool, and its frame. Two samples with
/// one hash are the same sample in a datagram that arrived twice: a source that starts to count again
/// numbers other frames.
pub(super) fn fingerprint(frame: &SampledFrame<'_>) -> u64 {
    let SampledFrame { data, original_bytes, header, .. } = frame;
    let SampleHeader { session, sequence, pool, .. } = *header;
    let (high, low) = (session.source.hash64(), session.source.low_bits());
    let kind = session.kind as u32;
    let words = [sequence, pool.unwrap_or(0), *original_bytes, session.engine, kind];
    let (address, words) = ([high, low, session.session].map(u64::to_le_bytes), words.map(u32::to_le_bytes));
    let seed = xxh3_64_with_seed(address.as_flattened(), xxh3_64(words.as_flattened()));
    xxh3_64_with_seed(data, seed)
}

/// A sampled frame as a record, with the tunnels around it: `outer` is the record that holds it, and
/// `path` the tunnels around the sample. `None` if there are too many tunnels.
pub(super) fn record_of<'a>(
    outer: &Record<'a>,
    path: &TunnelPath,
    frame: &SampledFrame<'a>,
) -> Option<(Record<'a>, TunnelPath)> {
    let SampledFrame { link_type, data, original_bytes, header } = *frame;
    let path = path.of_sample(header.mirror())?;
    Some((Record { link_type, data, original_bytes, ..*outer }, path))
}
