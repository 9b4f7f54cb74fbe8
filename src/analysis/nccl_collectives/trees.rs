//! The two binary trees in which NCCL connects nodes (`src/graph/trees.cc`: `ncclGetBtree`,
//! `ncclGetDtree`).

/// The parent of node `v` among `n`; `None` for the root 0.
///
/// A node whose lowest set bit is `b` is a child of the node with that bit cleared and the next one
/// set, or, beyond the last node, of the node with that bit cleared.
fn parent(v: u32, n: u32) -> Option<u32> {
    let bit = 1u32.checked_shl(v.trailing_zeros()).filter(|_| v > 0)?;
    let cleared = v ^ bit;
    Some(Some(cleared | bit << 1).filter(|up| *up < n).unwrap_or(cleared))
}

/// The parents of all nodes in each of the two trees. The second tree is the first one mirrored if
/// `n` is even, or shifted by one node if it is odd.
pub(super) fn parents(n: u32) -> [Vec<Option<u32>>; 2] {
    let first: Vec<Option<u32>> = (0..n).map(|v| parent(v, n)).collect();
    let second = (0..n).map(|v| {
        if n.is_multiple_of(2) {
            parent(n - 1 - v, n).map(|up| n - 1 - up)
        } else {
            parent((v + n - 1) % n, n).map(|up| (up + 1) % n)
        }
    });
    [first, second.collect()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drawings in `trees.cc`: 14 and 12 nodes, and the shifted tree of 13.
    #[test]
    fn trees_are_those_of_the_drawings() {
        let [first, _] = parents(14);
        let expected = [None, Some(2), Some(4), Some(2), Some(8), Some(6), Some(4), Some(6)];
        assert_eq!(first[..8], expected);
        assert_eq!(first[8..], [Some(0), Some(10), Some(12), Some(10), Some(8), Some(12)]);
        let [_, mirrored] = parents(12);
        assert_eq!((mirrored[11], mirrored[3], mirrored[7], mirrored[1]), (None, Some(11), Some(3), Some(3)));
        let [_, shifted] = parents(13);
        assert_eq!((shifted[1], shifted[9], shifted[5], shifted[0]), (None, Some(1), Some(9), Some(9)));
    }
}
