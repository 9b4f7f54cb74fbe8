//! The frames that a record holds as samples, as records of their own.

use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::link::TunnelPath;
use ibscope_parsers::sampled::{self, SampledFrame, SflowDatagram};

/// The sampled frame of a netlink record of psample.
pub(super) fn psample<'a>(record: &Record<'a>) -> Option<SampledFrame<'a>> {
    if record.link_type == LinkType::NETLINK { sampled::psample(record.data) } else { None }
}

/// The sFlow datagram at the end of this path; `None` if there is none, or if the port has another
/// protocol.
pub(super) fn datagram<'a>(record: &Record<'a>, path: &TunnelPath) -> Option<SflowDatagram<'a>> {
    let (start, end) = path.samples()?;
    SflowDatagram::parse(record.data.get(start..end.min(record.data.len()))?).ok()
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
