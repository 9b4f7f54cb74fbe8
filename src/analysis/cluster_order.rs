//! Matrix -> an order of its labels in which groups that exchange most of their traffic with each
//! other are adjacent.
//!
//! In: the bytes on the wire of each pair, in both directions. Out: a permutation of the labels. The
//! groups are those of hierarchical clustering with average linkage (Sokal and Michener, 1958): the
//! two groups with the most bytes per pair of members are joined, until one group is left.
//! Invariant: of two joined groups, the one with the lowest label comes first, so labels without
//! such groups keep their order.

use crate::analysis::matrix::Matrix;
use kodama::{Method, linkage};

/// Maximum number of labels: memory and time grow with their square (8 bytes for each pair).
pub const MAX_CLUSTERED: usize = 4096;

/// The labels of a matrix in the order of their clusters; `None` beyond [`MAX_CLUSTERED`] labels.
#[must_use]
pub fn cluster_order(matrix: &Matrix) -> Option<Vec<u32>> {
    let count = matrix.labels.len();
    if count > MAX_CLUSTERED {
        return None;
    }
    let mut groups: Vec<Vec<u32>> = (0..count as u32).map(|label| vec![label]).collect();
    let mut distances = distances(matrix, count);
    for step in linkage(&mut distances, count, Method::Average).steps() {
        let [a, b] = [step.cluster1, step.cluster2].map(|group| std::mem::take(&mut groups[group]));
        let lowest = |group: &[u32]| group.iter().copied().min();
        let (mut first, second) = if lowest(&a) < lowest(&b) { (a, b) } else { (b, a) };
        first.extend(second);
        groups.push(first);
    }
    Some(groups.pop().unwrap_or_default())
}

/// The distance of each pair of labels, 0 for the pair with the most bytes and 1 for pairs without
/// traffic: the upper triangle of a matrix, row by row. Average linkage of these distances orders
/// groups as the mean of the bytes does.
fn distances(matrix: &Matrix, count: usize) -> Vec<f64> {
    let pairs = count * count.saturating_sub(1) / 2;
    let mut bytes = vec![0_u64; pairs];
    for (&(src, dst), cell) in matrix.cells.iter().filter(|((src, dst), _)| src != dst) {
        let (low, high) = (src.min(dst) as usize, src.max(dst) as usize);
        // The rows before `low` have `count - 1`, `count - 2` ... pairs.
        let at = low * (2 * count - low - 1) / 2 + (high - low - 1);
        if let Some(sum) = bytes.get_mut(at) {
            *sum = sum.saturating_add(cell.wire_bytes);
        }
    }
    let most = bytes.iter().copied().max().unwrap_or(0).max(1) as f64;
    bytes.into_iter().map(|bytes| 1.0 - bytes as f64 / most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Label;
    use crate::analysis::endpoint_label::GroupBy;
    use crate::analysis::matrix::{MatrixCells, Selection};

    /// A matrix of `count` ranks; `bytes` of a sender and a receiver.
    fn matrix_of(count: u32, bytes: impl Fn(u32, u32) -> u64) -> Matrix {
        let mut cells = MatrixCells::default();
        for (src, dst) in (0..count).flat_map(|src| (0..count).map(move |dst| (src, dst))) {
            cells.cell(Label::only(src), Label::only(dst)).wire_bytes = bytes(src, dst);
        }
        cells.into_matrix(GroupBy::Rank, Selection::All)
    }

    #[test]
    fn groups_with_much_traffic_are_adjacent() {
        // Ranks with the same remainder form a group; the first half of each group is closer.
        let near = |src: u32, dst: u32| match (src % 3 == dst % 3, (src < 6) == (dst < 6)) {
            (false, _) => 1,
            (true, false) => 100,
            (true, true) => 1000,
        };
        let order = cluster_order(&matrix_of(12, near)).expect("few");
        assert_eq!(order, [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
    }

    #[test]
    fn both_directions_of_a_pair_count() {
        // Only the lower rank sends, or only the higher one.
        let bytes = |src, dst| u64::from([(0, 2), (3, 1)].contains(&(src, dst)));
        assert_eq!(cluster_order(&matrix_of(4, bytes)), Some(vec![0, 2, 1, 3]));
    }

    #[test]
    fn labels_without_traffic_keep_their_order() {
        assert_eq!(cluster_order(&matrix_of(5, |_, _| 0)), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(cluster_order(&matrix_of(0, |_, _| 0)), Some(Vec::new()));
        assert_eq!(cluster_order(&matrix_of(1, |_, _| 7)), Some(vec![0]));
    }

    #[test]
    fn more_labels_than_the_bound_have_no_order() {
        let mut matrix = matrix_of(2, |_, _| 1);
        matrix.labels = (0..MAX_CLUSTERED as u32).map(Label::only).collect();
        let mut order = cluster_order(&matrix).expect("at the bound");
        order.sort_unstable();
        assert!(order.into_iter().eq(0..MAX_CLUSTERED as u32), "a permutation");
        matrix.labels.push(Label::only(MAX_CLUSTERED as u32));
        assert_eq!(cluster_order(&matrix), None);
    }
}
