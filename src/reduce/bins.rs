//! The time series of one connection.
//!
//! In: values with a bin and a slot, roughly in the order of time. Out: one cell per bin and slot.
//! Cells are open until they are sealed, which keeps them as serialized bytes. Invariant: neither the
//! order of values nor a wider bin nor sealing changes a sum.

use super::congestion::CongestionSlot;
use crate::model::{MpiClass, PackedBins, PacketSums};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// The slot of a traffic cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum TrafficSlot {
    /// Packets by occurrence class.
    Occurrence(u8),
    /// MPI messages; `payload_bytes` holds their bytes.
    Mpi(MpiClass),
    /// Packets that show congestion or a NAK; `packets` holds their number, and they are in
    /// `Occurrence` too.
    Congestion(CongestionSlot),
}

/// Sums of one traffic slot in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrafficSums {
    pub(super) sums: PacketSums,
    pub(super) messages: u64,
}

impl AddAssign for TrafficSums {
    fn add_assign(&mut self, other: Self) {
        self.sums += other.sums;
        self.messages += other.messages;
    }
}

/// The slot of a cell that counts times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct TimeSlot {
    /// Index of the recorder in the connection's list, which states the kind of times.
    pub(super) recorder: u16,
    /// Coarse bucket of the times.
    pub(super) bucket: u16,
}

/// The number of times in a cell. It has 32 bits, because there are many cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Count(pub(super) u32);

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// The value of one slot in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BinCell<S, V> {
    pub(super) bin: i64,
    pub(super) slot: S,
    pub(super) value: V,
}

/// Cells of a connection, nearly sorted: time runs forward, except for small steps back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<BinCell<S, V>>", into = "Vec<BinCell<S, V>>")]
#[serde(bound(
    serialize = "S: BinPart + Ord, V: BinPart + AddAssign",
    deserialize = "S: BinPart + Ord, V: BinPart + AddAssign"
))]
pub(super) struct Bins<S, V> {
    /// Cells that were added before the open ones; most connections have none.
    sealed: Option<Box<PackedBins<(S, V)>>>,
    /// The open cells.
    cells: Vec<BinCell<S, V>>,
    /// Cells from this index on are of one bin and sorted by slot. Earlier cells are of bins that
    /// were added before.
    current: usize,
}

impl<S, V> Default for Bins<S, V> {
    fn default() -> Self {
        Self { sealed: None, cells: Vec::new(), current: 0 }
    }
}

/// Serialized form of the cells: each bin is the difference to the one before, which is a small
/// number.
impl<S: BinPart + Ord, V: BinPart + AddAssign> From<Bins<S, V>> for Vec<BinCell<S, V>> {
    fn from(bins: Bins<S, V>) -> Self {
        let mut cells = bins.into_cells();
        let mut before = 0i64;
        for cell in &mut cells {
            let bin = std::mem::replace(&mut before, cell.bin);
            cell.bin = cell.bin.wrapping_sub(bin);
        }
        cells
    }
}

impl<S: BinPart + Ord, V: BinPart + AddAssign> From<Vec<BinCell<S, V>>> for Bins<S, V> {
    fn from(mut cells: Vec<BinCell<S, V>>) -> Self {
        let mut bin = 0i64;
        for cell in &mut cells {
            bin = bin.wrapping_add(cell.bin);
            cell.bin = bin;
        }
        let mut bins = Self { sealed: None, cells, current: 0 };
        if bins.cells.len() > MANY_CELLS {
            bins.seal();
        } else {
            bins.join();
        }
        bins
    }
}

/// Cells of a connection that are sealed as soon as they are read from a file. Fewer take as much memory
/// sealed as open.
const MANY_CELLS: usize = 4;

/// A slot or value that can be sealed.
pub(super) trait BinPart: Copy + Serialize + DeserializeOwned {}

impl<T: Copy + Serialize + DeserializeOwned> BinPart for T {}

/// Number of cells by which a short list grows. Most connections have only a few cells, and each
/// growth may move all of them.
const SPARE_CELLS: usize = 2;

impl<S: BinPart + Ord, V: BinPart + AddAssign> Bins<S, V> {
    /// The slots of all cells.
    pub(super) fn slots(&self) -> impl Iterator<Item = S> + '_ {
        let sealed = self.sealed.iter().flat_map(|sealed| sealed.iter());
        sealed.map(|(_, (slot, _))| slot).chain(self.cells.iter().map(|cell| cell.slot))
    }

    /// Seals all cells. A later value of a sealed cell gets a cell of its own until both are joined.
    pub(super) fn seal(&mut self) {
        if self.cells.is_empty() {
            return;
        }
        self.join_open();
        let sealed = self.sealed.get_or_insert_default();
        sealed.extend(self.cells.drain(..).map(|cell| (cell.bin, (cell.slot, cell.value))));
        sealed.shrink_to_fit();
        (self.cells, self.current) = (Vec::new(), 0);
    }

    /// Makes all cells open again.
    fn unseal(&mut self) {
        let Some(sealed) = self.sealed.take() else { return };
        let mut cells = Vec::with_capacity(sealed.len() + self.cells.len());
        cells.extend(sealed.iter().map(|(bin, (slot, value))| BinCell { bin, slot, value }));
        cells.append(&mut self.cells);
        self.cells = cells;
    }

    /// Adds to a bin; true if a new cell was needed.
    pub(super) fn add(&mut self, bin: i64, slot: S, value: V) -> bool {
        if self.cells.get(self.current).is_none_or(|cell| cell.bin != bin) {
            self.current = self.cells.len();
        }
        // Most packets are observed once, and have the first slot of their bin.
        if let Some(first) = self.cells.get_mut(self.current).filter(|first| first.slot == slot) {
            first.value += value;
            return false;
        }
        let open = self.cells.get_mut(self.current..).unwrap_or_default();
        match open.binary_search_by_key(&slot, |cell| cell.slot) {
            Ok(at) => {
                open[at].value += value;
                false
            }
            Err(at) => {
                // All connections together have half a million cells, so the capacity is not
                // doubled.
                if self.cells.len() == self.cells.capacity() {
                    self.cells.reserve_exact(self.cells.len() / 4 + SPARE_CELLS);
                }
                self.cells.insert(self.current + at, BinCell { bin, slot, value });
                true
            }
        }
    }

    /// The number of cells; with `exact`, after joining those of the same bin and slot.
    pub(super) fn cells(&mut self, exact: bool) -> usize {
        if exact {
            let was_sealed = self.sealed.is_some();
            self.join();
            if was_sealed {
                self.seal();
            }
        }
        self.cells.len() + self.sealed.as_ref().map_or(0, |sealed| sealed.len())
    }

    /// Doubles the bin width.
    pub(super) fn widen(&mut self) {
        let was_sealed = self.sealed.is_some();
        self.unseal();
        for cell in &mut self.cells {
            cell.bin = cell.bin.div_euclid(2);
        }
        self.join();
        self.cells.shrink_to_fit();
        if was_sealed {
            self.seal();
        }
    }

    /// The cells, sorted by bin and slot, one per bin and slot.
    pub(super) fn into_cells(mut self) -> Vec<BinCell<S, V>> {
        self.join();
        self.cells
    }

    fn join(&mut self) {
        self.unseal();
        self.join_open();
    }

    /// Joins open cells of the same bin and slot.
    fn join_open(&mut self) {
        self.cells.sort_unstable_by_key(|cell| (cell.bin, cell.slot));
        self.cells.dedup_by(|cell, kept| {
            let same = (cell.bin, cell.slot) == (kept.bin, kept.slot);
            if same {
                kept.value += cell.value;
            }
            same
        });
        let last = self.cells.last().map(|cell| cell.bin);
        self.current = self.cells.partition_point(|cell| Some(cell.bin) < last);
    }
}

/// Computes the bin of a time. Consecutive times mostly lie in the same bin, so that most need no
/// division.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub(super) struct BinIndexer {
    bin_ns: i64,
    /// The last bin, and its start.
    bin: i64,
    start_ns: i64,
}

impl TryFrom<i64> for BinIndexer {
    type Error = &'static str;

    fn try_from(bin_ns: i64) -> Result<Self, Self::Error> {
        if bin_ns > 0 { Ok(Self::new(bin_ns)) } else { Err("bins have a positive width") }
    }
}

impl From<BinIndexer> for i64 {
    fn from(indexer: BinIndexer) -> Self {
        indexer.bin_ns
    }
}

impl BinIndexer {
    /// Bin width in nanoseconds.
    pub(super) const fn bin_ns(self) -> i64 {
        self.bin_ns
    }

    /// An indexer for bins of a positive width.
    pub(super) const fn new(bin_ns: i64) -> Self {
        Self { bin_ns, bin: 0, start_ns: 0 }
    }

    /// The bin of a time.
    #[inline]
    pub(super) fn bin(&mut self, time_ns: i64) -> i64 {
        // The difference may exceed `i64`, but never `u64`.
        let offset_ns = time_ns.wrapping_sub(self.start_ns).cast_unsigned();
        if time_ns >= self.start_ns && offset_ns < self.bin_ns.cast_unsigned() {
            return self.bin;
        }
        let bin = time_ns.div_euclid(self.bin_ns);
        // The start of the first bin of all may be below `i64::MIN`.
        if let Some(start_ns) = time_ns.checked_sub(time_ns.rem_euclid(self.bin_ns)) {
            (self.bin, self.start_ns) = (bin, start_ns);
        }
        bin
    }

    /// Doubles the bin width.
    pub(super) const fn widen(&mut self) {
        *self = Self::new(self.bin_ns.saturating_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(packets: u64, messages: u64) -> TrafficSums {
        TrafficSums { sums: PacketSums { packets, wire_bytes: packets * 100, payload_bytes: packets * 10 }, messages }
    }

    #[test]
    fn steps_back_in_time_join_their_bin() {
        let mut bins = Bins::default();
        for bin in [5, 5, 6, 5, 7] {
            bins.add(bin, TrafficSlot::Occurrence(0), traffic(1, 1));
        }
        assert_eq!(bins.cells(false), 4);
        assert_eq!(bins.cells(true), 3);
        let packets: Vec<_> = bins.into_cells().iter().map(|cell| (cell.bin, cell.value.sums.packets)).collect();
        assert_eq!(packets, [(5, 3), (6, 1), (7, 1)]);
    }

    /// Sealed or not, cells have the same sums, also after wider bins.
    #[test]
    fn sealed_cells_count_like_open_ones() {
        let (mut open, mut sealed) = (Bins::default(), Bins::default());
        for bin in [5, 5, 6, 5, 7, 6, 9] {
            open.add(bin, TrafficSlot::Occurrence(0), traffic(1, 1));
            sealed.add(bin, TrafficSlot::Occurrence(0), traffic(1, 1));
            sealed.seal();
        }
        assert_eq!((sealed.cells(false), sealed.cells(true)), (7, 4));
        assert_eq!(sealed.slots().count(), 4);
        assert_eq!(open.clone().into_cells(), sealed.clone().into_cells());
        open.widen();
        sealed.widen();
        assert_eq!(open.clone().into_cells(), sealed.clone().into_cells());
        // Three cells so far. Longer lists are sealed when they are read.
        for (bin, is_sealed) in [(20, false), (21, true), (22, true), (20, true)] {
            for bins in [&mut open, &mut sealed] {
                bins.add(bin, TrafficSlot::Occurrence(1), traffic(1, 1));
            }
            let stored: Bins<_, _> = Vec::<BinCell<_, _>>::from(sealed.clone()).into();
            assert_eq!((stored.sealed.is_some(), stored.cells.is_empty()), (is_sealed, is_sealed));
            assert_eq!(open.clone().into_cells(), stored.into_cells());
        }
    }

    #[test]
    fn slots_of_a_bin_come_in_any_order() {
        let mut bins = Bins::default();
        for slot in [7, 3, 9, 3, 7, 7, 1] {
            bins.add(4, slot, Count(1));
        }
        let counts: Vec<_> = bins.into_cells().iter().map(|cell| (cell.slot, cell.value.0)).collect();
        assert_eq!(counts, [(1, 1), (3, 2), (7, 3), (9, 1)]);
    }

    #[test]
    fn wider_bins_hold_the_same_sums() {
        let mut bins = Bins::default();
        let (first, second) = (TrafficSlot::Occurrence(0), TrafficSlot::Occurrence(1));
        for bin in -3..3 {
            bins.add(bin, first, traffic(1, 0));
            bins.add(bin, second, traffic(2, 0));
        }
        bins.widen();
        bins.add(1, first, traffic(1, 0));
        let packets: Vec<_> =
            bins.into_cells().iter().map(|cell| (cell.bin, cell.slot, cell.value.sums.packets)).collect();
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

    #[test]
    fn bins_of_times_are_those_of_a_division() {
        let edges = [i64::MIN, i64::MIN + 1, -1001, -1, 0, 1, 999, 1000, 1001, i64::MAX - 1, i64::MAX];
        for bin_ns in [1, 2, 3, 1000, 1 << 60, i64::MAX] {
            let mut indexer = BinIndexer::new(bin_ns);
            for time_ns in edges.into_iter().chain(edges.into_iter().rev()).chain(-20..20) {
                assert_eq!(indexer.bin(time_ns), time_ns.div_euclid(bin_ns), "{time_ns} in bins of {bin_ns}");
            }
        }
        let mut indexer = BinIndexer::new(10);
        assert_eq!(indexer.bin(25), 2);
        indexer.widen();
        assert_eq!(indexer.bin(25), 1);
    }
}
