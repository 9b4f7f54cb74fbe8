//! The rows and columns of the matrix of a page: the ports of each node and leaf switch, and the
//! orders that the page does not compute.
//!
//! In: the profile, and the ports of the page. Out: JSON. A port, label, node or leaf switch is its
//! place in a list of the page, and every list has the order of `ibscope matrix`.

use crate::analysis::cluster_order::cluster_order;
use crate::analysis::matrix::{Matrix, Selection, matrix};
use crate::analysis::{EndpointLabels, GroupBy, GroupInside, Label};
use crate::model::Profile;
use ibscope_parsers::Endpoint;
use serde_json::{Map, Value, json};

/// The matrices that a page may show.
const GROUPINGS: [GroupBy; 4] = [GroupBy::Rank, GroupBy::Endpoint, GroupBy::Node, GroupBy::Leaf];

/// The groups by name, and by name of the grouping the places of the rows in the order of their
/// clusters; null beyond the bound of [`cluster_order`]. Leaf switches are left out if none is
/// known.
pub(super) fn document(profile: &Profile, endpoints: &[Endpoint]) -> Value {
    let has_leaves = !profile.leaves.is_empty();
    let (mut groups, mut clusters) = (Map::new(), Map::new());
    for by in GROUPINGS.into_iter().filter(|by| *by != GroupBy::Leaf || has_leaves) {
        let matrix = matrix(profile, by, Selection::All);
        clusters.insert(by.name().to_owned(), cluster_order(&matrix).into());
        if [GroupBy::Node, GroupBy::Leaf].contains(&by) {
            groups.insert(by.name().to_owned(), group(profile, &matrix, endpoints));
        }
    }
    json!({ "groups": groups, "clusters": clusters })
}

/// The names of the groups of a matrix, the places of the groups with traffic inside that the page
/// does not show, and the group of each port.
fn group(profile: &Profile, matrix: &Matrix, endpoints: &[Endpoint]) -> Value {
    let labels = EndpointLabels::new(profile, matrix.by);
    let place = |endpoint: &Endpoint| matrix.labels.binary_search(&labels.port(*endpoint)).ok();
    let with = |is: fn(&GroupInside) -> bool| -> Vec<usize> {
        matrix.insides.iter().enumerate().filter(|(_, inside)| is(inside)).map(|(place, _)| place).collect()
    };
    json!({
        "names": matrix.labels.iter().map(Label::name).collect::<Vec<_>>(),
        "of": endpoints.iter().map(place).collect::<Vec<_>>(),
        "with_ranks_on_one_node": with(|inside| inside.has_ranks_on_one_node),
        "with_several_ports": with(|inside| inside.has_several_ports),
    })
}
