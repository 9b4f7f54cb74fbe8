//! The timeline of one connection: sums by bin, in the order of time as it comes.

use crate::model::Sums;
use crate::model::traffic::MpiClass;

/// What a cell sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// Packets by occurrence class.
    Occurrence(u8),
    /// MPI messages; their bytes stand in `payload_bytes`.
    Mpi(MpiClass),
}

/// Sums of one slot in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) bin: i64,
    pub(super) slot: Slot,
    pub(super) sums: Sums,
    pub(super) messages: u64,
}

/// Cells of a connection, nearly sorted: time runs forwards but for small steps back.
#[derive(Clone, Debug, Default)]
pub(super) struct Bins {
    cells: Vec<Cell>,
    /// Cells before this one lie in earlier bins than those from it on, as they were added.
    current: usize,
}

impl Bins {
    /// Adds to a bin.
    pub(super) fn add(&mut self, bin: i64, slot: Slot, sums: Sums, messages: u64) {
        if self.cells.get(self.current).is_none_or(|cell| cell.bin != bin) {
            self.current = self.cells.len();
        }
        let open = self.cells.get_mut(self.current..).unwrap_or_default();
        if let Some(cell) = open.iter_mut().find(|cell| cell.slot == slot) {
            cell.sums += sums;
            cell.messages += messages;
        } else {
            // All connections together have a million cells: room is not doubled.
            if self.cells.len() == self.cells.capacity() {
                self.cells.reserve_exact(self.cells.len() / 4 + 4);
            }
            self.cells.push(Cell { bin, slot, sums, messages });
        }
    }

    /// How many cells there are; with `exact`, after joining those of the same bin and slot.
    pub(super) fn cells(&mut self, exact: bool) -> usize {
        if exact {
            self.join();
        }
        self.cells.len()
    }

    /// Makes each bin twice as wide.
    pub(super) fn widen(&mut self) {
        for cell in &mut self.cells {
            cell.bin = cell.bin.div_euclid(2);
        }
        self.join();
    }

    /// The cells, sorted by bin and slot, one each.
    pub(super) fn into_cells(mut self) -> Vec<Cell> {
        self.join();
        self.cells
    }

    fn join(&mut self) {
        self.cells.sort_unstable_by_key(|cell| (cell.bin, cell.slot));
        self.cells.dedup_by(|cell, kept| {
            let same = (cell.bin, cell.slot) == (kept.bin, kept.slot);
            if same {
                kept.sums += cell.sums;
                kept.messages += cell.messages;
            }
            same
        });
        let last = self.cells.last().map(|cell| cell.bin);
        self.current = self.cells.partition_point(|cell| Some(cell.bin) < last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(packets: u64) -> Sums {
        Sums { packets, wire_bytes: packets * 100, payload_bytes: packets * 10 }
    }

    #[test]
    fn steps_back_in_time_join_their_bin() {
        let mut bins = Bins::default();
        for bin in [5, 5, 6, 5, 7] {
            bins.add(bin, Slot::Occurrence(0), sums(1), 1);
        }
        assert_eq!(bins.cells(false), 4);
        assert_eq!(bins.cells(true), 3);
        let packets: Vec<_> = bins.into_cells().iter().map(|cell| (cell.bin, cell.sums.packets)).collect();
        assert_eq!(packets, [(5, 3), (6, 1), (7, 1)]);
    }

    #[test]
    fn wider_bins_hold_the_same_sums() {
        let mut bins = Bins::default();
        for bin in -3..3 {
            bins.add(bin, Slot::Occurrence(0), sums(1), 0);
            bins.add(bin, Slot::Occurrence(1), sums(2), 0);
        }
        bins.widen();
        bins.add(1, Slot::Occurrence(0), sums(1), 0);
        let packets: Vec<_> = bins.into_cells().iter().map(|cell| (cell.bin, cell.slot, cell.sums.packets)).collect();
        let (first, second) = (Slot::Occurrence(0), Slot::Occurrence(1));
        assert_eq!(
            packets,
            [
                (-2, first, 1),
                (-2, second, 2),
                (-1, first, 2),
                (-1, second, 4),
                (0, first, 2),
                (0, second, 4),
                (1, first, 2),
                (1, second, 2)
            ]
        );
    }
}
