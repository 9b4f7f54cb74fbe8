//! Target `fabric_tools`: the bytes are the output of a fabric tool, or a host list.

use ibscope_parsers::tools::{ToolError, ToolErrorKind, hostlist, ibnetdiscover, ibstat, ibtracert};

/// Limit of names that a host list may expand to.
const MAX_NODES: usize = 1000;

/// Runs every text parser.
///
/// # Panics
/// If an error points outside the text, or a host list exceeds its limit.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let hosts = hostlist::expand(&text, MAX_NODES);
    assert!(hosts.as_ref().map_or(0, Vec::len) <= MAX_NODES);
    let trace = ibtracert::parse(&text);
    let _ = trace.as_ref().map(ibtracert::FabricRoute::leaf);
    let errors: [Option<ToolError>; 4] =
        [hosts.err(), ibstat::parse(&text).err(), trace.err(), ibnetdiscover::parse_ports(&text).err()];
    for error in errors.into_iter().flatten() {
        assert!(text.is_char_boundary(error.offset), "{error}");
        assert!(error.line >= 1 && error.line <= text.split('\n').count(), "{error}");
        assert!(error.kind != ToolErrorKind::Expected(""), "{error:?}");
    }
}
