//! The longest common subsequence of two sequences, by Myers' greedy algorithm.
//!
//! In: the lengths of two sequences and a function that compares two of their elements. Out: the
//! indices of the elements that correspond. Time and memory grow with the number of differences, not
//! with the product of the lengths (E. W. Myers, "An O(ND) Difference Algorithm and Its Variations",
//! 1986).

/// Limit of the differences; sequences with more are not aligned.
pub(super) const MAX_DIFFERENCES: usize = 2000;

/// Indices of the corresponding elements, in order. `None` above [`MAX_DIFFERENCES`].
pub(super) fn common(
    (left, right): (usize, usize),
    is_equal: &dyn Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    let most = (left + right).min(MAX_DIFFERENCES);
    // The furthest index on the left that a path with this many differences reaches, by diagonal:
    // left index - right index, from -differences to +differences in steps of 2.
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for differences in 0..=most {
        let mut reached = Vec::with_capacity(differences + 1);
        for place in 0..=differences {
            let mut x = start(rounds.last().map(Vec::as_slice), place);
            // The right index; the path may leave the grid, from where no element corresponds.
            let y = |x: usize| (x + differences).checked_sub(2 * place);
            while let Some(own) = y(x).filter(|own| x < left && *own < right && is_equal(x, *own)) {
                debug_assert!(own < right);
                x += 1;
            }
            reached.push(x);
            if x >= left && y(x).is_some_and(|own| own >= right) {
                rounds.push(reached);
                return Some(trace_back(&rounds, (left, right), place));
            }
        }
        rounds.push(reached);
    }
    None
}

/// Where the path on a diagonal starts: one step from the path on a neighboring diagonal.
fn start(before: Option<&[usize]>, place: usize) -> usize {
    let Some(before) = before else { return 0 };
    let from_below = place.checked_sub(1).and_then(|below| before.get(below)).map(|x| x + 1);
    let from_above = before.get(place).copied();
    from_below.max(from_above).unwrap_or(0)
}

/// The corresponding elements on the path that ends at `place` of the last round.
fn trace_back(rounds: &[Vec<usize>], (left, right): (usize, usize), mut place: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for differences in (0..rounds.len()).rev() {
        let before = differences.checked_sub(1).and_then(|before| rounds.get(before)).map(Vec::as_slice);
        let (end, begin) = (rounds[differences][place], start(before, place));
        for x in (begin..end).rev() {
            if let Some(y) = (x + differences).checked_sub(2 * place).filter(|y| x < left && *y < right) {
                pairs.push((x, y));
            }
        }
        let from_below = place.checked_sub(1).filter(|below| {
            before.is_some_and(|before| before.get(*below).is_some_and(|x| x + 1 == begin))
                && before.is_none_or(|before| before.get(place).is_none_or(|x| *x < begin))
        });
        place = from_below.unwrap_or_else(|| place.min(differences.saturating_sub(1)));
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length of the longest common subsequence, by the table of all prefixes.
    fn longest(a: &[u8], b: &[u8]) -> usize {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                table[i + 1][j + 1] = if x == y { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
            }
        }
        table[a.len()][b.len()]
    }

    #[test]
    fn all_short_sequences_are_aligned_as_by_the_table() {
        // All pairs of sequences of up to five of two letters.
        let words: Vec<Vec<u8>> = (0..=5_u32)
            .flat_map(|length| {
                (0..1_u32 << length).map(move |bits| (0..length).map(|at| (bits >> at & 1) as u8).collect())
            })
            .collect();
        for (a, b) in words.iter().flat_map(|a| words.iter().map(move |b| (a, b))) {
            let pairs = common((a.len(), b.len()), &|x, y| a[x] == b[y]).expect("few differences");
            assert_eq!(pairs.len(), longest(a, b), "{a:?} {b:?} {pairs:?}");
            assert!(pairs.iter().all(|(x, y)| a[*x] == b[*y]), "{a:?} {b:?} {pairs:?}");
            assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{a:?} {b:?} {pairs:?}");
        }
    }

    #[test]
    fn sequences_with_too_many_differences_are_not_aligned() {
        let length = MAX_DIFFERENCES / 2;
        assert_eq!(common((length, length), &|_, _| false), Some(Vec::new()));
        assert_eq!(common((length + 1, length), &|_, _| false), None);
    }
}
