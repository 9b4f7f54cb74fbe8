//! Two jobs one after the other on overlapping nodes, whose adapters assign the same queue pair
//! numbers again. The truth is each job alone.

use crate::runs;
use crate::wire::{data_connections, profile_of};
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope_parsers::Endpoint;
use ibscope_samples::hard::rewrite::AddressRewrite;
use ibscope_samples::hard::{Recording, combine};

/// The recording of a run on two nodes: both ports.
fn both_ports(name: &str) -> Recording {
    let ports: Vec<Recording> =
        runs::named(name).every_node().iter().map(|path| Recording::read(path).expect("recording")).collect();
    combine::merge(&ports)
}

/// The same program as another job on nodes 2 and 3, `after_ns` later.
fn on_the_next_nodes(recording: &Recording, after_ns: i64) -> Recording {
    let address = |node: u8| [10, 77, 0, node];
    let moved = [(1, 2), (2, 3)].map(|(from, to)| (address(from), address(to)));
    let rewrite = AddressRewrite {
        hosts: moved.iter().map(|(from, to)| (Endpoint::from_ipv4(*from), Endpoint::from_ipv4(*to))).collect(),
        addresses: moved.into_iter().collect(),
        identity: 0x5A5A_0007,
        ..AddressRewrite::default()
    };
    combine::shift(&rewrite.apply(recording), after_ns)
}

fn messages(row: &ConnectionRow) -> u64 {
    row.traffic.p2p_messages + row.traffic.collective_messages
}

/// No pair of ports loses its MPI messages without a mark and a note.
#[test]
fn connections_without_their_mpi_messages_are_unknown() {
    let mut hidden = 0;
    for name in ["ompi-rc-ring2", "mpich-rc-ring2", "mpich-rc-mixed-2x2", "ompi-ud-ring2", "ompi-rc-halo-2x2"] {
        let first = both_ports(name);
        let second = on_the_next_nodes(&first, 60_000_000_000);
        let found = profile_of(&combine::merge(&[first.clone(), second.clone()]));
        for alone in [profile_of(&first), profile_of(&second)] {
            for own in data_connections(&alone).filter(|own| messages(own) > 0) {
                let key = |row: &ConnectionRow| (row.src, row.dst, row.service, row.dest_qp);
                let same: Vec<&ConnectionRow> = data_connections(&found).filter(|row| key(row) == key(own)).collect();
                let is_marked = same.iter().any(|row| row.coverage.state == CoverageState::Unknown);
                let counted: u64 = same.iter().map(|row| messages(row)).sum();
                assert!(counted == messages(own) || is_marked, "{name}: {counted} of {}: {own:?}", messages(own));
                hidden += u64::from(counted == 0);
            }
        }
        let uncounted =
            data_connections(&found).any(|row| row.stack.is_none() && row.coverage.state == CoverageState::Unknown);
        let has_note = found.notes.iter().any(|note| note.contains("several processes used the number"));
        assert!(has_note || !uncounted, "{name}: {:?}", found.notes);
    }
    assert!(hidden > 0, "some connections are of several processes");
}
