//! Bytes as the text of a fabric tool, or as a list of nodes.

use ibscope_parsers::tools::{Fault, ToolError, hostlist, ibnetdiscover, ibstat, ibtracert};

/// Most nodes that a list may name here.
const MOST_NODES: usize = 1000;

/// Every reader of text; an error must lie in the text.
///
/// # Panics
/// Where an error points elsewhere, or a list is longer than was allowed.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let hosts = hostlist::expand(&text, MOST_NODES);
    assert!(hosts.as_ref().map_or(0, Vec::len) <= MOST_NODES);
    let trace = ibtracert::parse(&text);
    let _ = trace.as_ref().map(ibtracert::Trace::leaf);
    let errors: [Option<ToolError>; 4] =
        [hosts.err(), ibstat::parse(&text).err(), trace.err(), ibnetdiscover::parse_ports(&text).err()];
    for error in errors.into_iter().flatten() {
        assert!(text.is_char_boundary(error.offset), "{error}");
        assert!(error.line >= 1 && error.line <= text.split('\n').count(), "{error}");
        assert!(error.fault != Fault::Expected(""), "{error:?}");
    }
}
