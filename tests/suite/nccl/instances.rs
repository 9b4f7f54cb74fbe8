//! `collectives --view instances` on messages of NCCL: the whole way from packets to rows.

use crate::tools::{csv_rows, result};
use crate::wire::{WireBuilder, WireQueuePair};

const RANKS: usize = 3;
const CHUNK_BYTES: usize = 4096;
const BUFFER_BYTES: u64 = 512 << 10;
const RING: u64 = 0x7F76_9445_BA80;
const KEY: u32 = 0x1700;

/// Address of the buffer of receive `index` (from 1) of rank `dst`.
fn buffer(dst: usize, index: u64) -> u64 {
    0x7F25_E980_0000 + dst as u64 * 0x1_0000_0000 + (index - 1) % 8 * BUFFER_BYTES
}

/// An element of NCCL 2.27: address, size u64, keys at 16, elements at 32, tag at 36, index at 40.
fn element(dst: usize, src: usize, index: u64) -> Vec<u8> {
    let mut element = vec![0; 64];
    let mut put = |at: usize, bytes: &[u8]| element[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &buffer(dst, index).to_le_bytes());
    put(8, &BUFFER_BYTES.to_le_bytes());
    put(16, &KEY.to_le_bytes());
    put(32, &1u32.to_le_bytes());
    put(36, &(src as u32).to_le_bytes());
    put(40, &index.to_le_bytes());
    element
}

/// Own data of a rank for a chunk.
fn own(rank: usize, chunk: usize) -> Vec<u8> {
    (0..CHUNK_BYTES).map(|at| (at * (2 * rank + 3) + 17 * chunk + at / 7) as u8).collect()
}

/// Constructed: an `AllReduce` of three ranks over one ring (`all_reduce.h`), then an `AllGather`.
/// Both have chunks of [`CHUNK_BYTES`].
pub(crate) fn allreduce_and_allgather() -> WireBuilder {
    let mut wire = WireBuilder::new();
    let lid = |rank: usize| 17 + rank as u16;
    let next = |rank: usize| (rank + 1) % RANKS;
    let qpn = |rank: usize, side: u32| 0x100 * (rank as u32 + 1) + side;
    let mut links: Vec<(WireQueuePair, WireQueuePair)> = (0..RANKS)
        .map(|rank| WireQueuePair::pair((lid(rank), qpn(rank, 1)), (lid(next(rank)), qpn(rank, 2))))
        .collect();
    let mut index = 0;
    for steps in [2 * (RANKS - 1), RANKS - 1] {
        let is_allreduce = steps > RANKS - 1;
        for (src, (there, back)) in links.iter_mut().enumerate() {
            for own in 1..=steps as u64 {
                let slot = RING + (index + own - 1) % 256 * 512;
                back.write(&mut wire, slot, 0x29, &element(next(src), src, index + own));
                there.ack(&mut wire, back);
            }
        }
        let mut data: Vec<Vec<Vec<u8>>> =
            (0..RANKS).map(|rank| (0..RANKS).map(|chunk| own(rank, chunk)).collect()).collect();
        for step in 0..steps {
            index += 1;
            let chunk = |rank: usize| (rank + 2 * RANKS - 1 - step) % RANKS;
            let sent: Vec<Vec<u8>> = (0..RANKS).map(|rank| data[rank][chunk(rank)].clone()).collect();
            for (src, (there, back)) in links.iter_mut().enumerate() {
                let word = (CHUNK_BYTES as u32).swap_bytes();
                there.write_immediate(&mut wire, buffer(next(src), index), KEY, &sent[src], word);
                back.ack(&mut wire, there);
                let known = &mut data[next(src)][chunk(src)];
                let adds = is_allreduce && step + 1 < RANKS;
                let sum = |(known, sent): (&u8, &u8)| if adds { known.wrapping_add(*sent) } else { *sent };
                *known = known.iter().zip(&sent[src]).map(sum).collect();
            }
        }
    }
    wire
}

/// The bandwidths follow from the definitions of nccl-tests (`PERFORMANCE.md`).
#[test]
fn an_allreduce_and_an_allgather_of_three_ranks() {
    let text = result(&["collectives", "--view", "instances", "--format", "csv"], &[allreduce_and_allgather().file()]);
    let rows = csv_rows(&text);
    let columns = ["communicator", "instance", "operation", "algorithm", "confidence", "ranks", "bytes"];
    let found: Vec<Vec<&str>> = rows.iter().map(|row| columns.map(|column| row[column].as_str()).to_vec()).collect();
    let expected = [
        ["world", "1", "allreduce", "ring", "high", "3", "12288"],
        ["world", "2", "allgather", "ring", "high", "3", "4096"],
    ];
    assert_eq!(found, expected, "{text}");
    for (row, factor) in rows.iter().zip([4.0 / 3.0, 2.0 / 3.0]) {
        let of = |column: &str| row[column].parse::<f64>().expect("number");
        // Both vectors have three blocks.
        let algbw = 12288.0 / (of("duration_ns") / 1e9);
        assert!((of("algbw_bytes_per_s") - algbw).abs() <= 1.0, "{text}");
        assert!((of("busbw_bytes_per_s") - algbw * factor).abs() <= 1.0, "{text}");
    }
}
