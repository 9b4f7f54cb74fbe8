//! Passes the records of a pcap stream on to a reader that may be too slow. What the reader cannot
//! keep up with is dropped as whole records, and counted.

use ibscope_parsers::frame::Framing;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of the header of a pcap file, and of a record's header (draft-ietf-opsawg-pcap).
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const READ_BYTES: usize = 256 << 10;

/// Whole records, in the order of the stream.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    bytes: Vec<u8>,
    totals: RecordTotals,
}

/// A number of packets, and the bytes of their records without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordTotals {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl RecordTotals {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// A queue of batches that holds a limited number of bytes.
pub(super) struct RecordQueue {
    batches: Sender<RecordBatch>,
    /// Bytes in the queue.
    waiting_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

/// The end of a queue that takes batches out.
pub(super) struct RecordSource {
    batches: Receiver<RecordBatch>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Creates a queue for this many bytes.
pub(super) fn queue(max_bytes: usize) -> (RecordQueue, RecordSource) {
    let ((sender, receiver), waiting_bytes) = (channel(), Arc::new(AtomicUsize::new(0)));
    let queue = RecordQueue { batches: sender, waiting_bytes: Arc::clone(&waiting_bytes), max_bytes };
    (queue, RecordSource { batches: receiver, waiting_bytes })
}

impl RecordQueue {
    /// Puts the batch into the queue if there is room, and leaves an empty one.
    fn offer(&self, batch: &mut RecordBatch) {
        if self.waiting_bytes.load(Ordering::Acquire) + batch.bytes.len() <= self.max_bytes {
            self.put(batch);
        }
    }

    fn put(&self, batch: &mut RecordBatch) {
        let batch = std::mem::take(batch);
        self.waiting_bytes.fetch_add(batch.bytes.len(), Ordering::AcqRel);
        // Without a receiver the batch is lost. The totals of the receiver show that.
        let _ = self.batches.send(batch);
    }

    /// Bytes of a batch that does not fit and is dropped.
    fn max_batch_bytes(&self) -> usize {
        self.max_bytes / 16
    }
}

/// Reads a pcap stream to its end and puts its records into the queue. Never waits for the queue.
/// Returns the records of the stream, also if it becomes unreadable.
pub(super) fn read(mut stream: impl Read, queue: &RecordQueue) -> (RecordTotals, io::Result<()>) {
    let mut all = RecordTotals::default();
    let read = read_records(&mut stream, queue, &mut all);
    (all, read)
}

fn read_records(stream: &mut impl Read, queue: &RecordQueue, all: &mut RecordTotals) -> io::Result<()> {
    let mut header = vec![0; FILE_HEADER_BYTES];
    match stream.read_exact(&mut header) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    // The magic number is 0xa1b2c3d4 or 0xa1b23c4d, in the byte order of the writer.
    let is_little_endian = matches!(header[0], 0xd4 | 0x4d);
    queue.put(&mut RecordBatch { bytes: header, totals: RecordTotals::default() });
    let (mut batch, mut chunk, mut rest) = (RecordBatch::default(), vec![0; READ_BYTES], Vec::new());
    loop {
        let length = match stream.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            length => length?,
        };
        if length == 0 {
            break;
        }
        rest.extend_from_slice(&chunk[..length]);
        let mut at = 0;
        while let Some(packet_bytes) = packet_length(&rest[at..], is_little_endian)? {
            let end = at + RECORD_HEADER_BYTES + packet_bytes;
            if end > rest.len() {
                break;
            }
            if batch.totals.packets > 0 && batch.bytes.len() + end - at > queue.max_batch_bytes() {
                queue.offer(&mut batch);
                // A batch that does not fit is dropped: the capture program must not wait.
                batch.bytes.clear();
                batch.totals = RecordTotals::default();
            }
            let totals = RecordTotals { packets: 1, bytes: packet_bytes as u64 };
            batch.bytes.extend_from_slice(&rest[at..end]);
            batch.totals.add(totals);
            all.add(totals);
            at = end;
        }
        rest.drain(..at);
        // A batch that does not fit yet grows.
        queue.offer(&mut batch);
    }
    // The capture has ended, so the last batch may wait.
    queue.put(&mut batch);
    Ok(())
}

/// Length of the packet of the record that begins here; `None` if its header is not complete.
fn packet_length(bytes: &[u8], is_little_endian: bool) -> io::Result<Option<usize>> {
    let Some(Ok(word)) = bytes.get(..RECORD_HEADER_BYTES).map(|header| <[u8; 4]>::try_from(&header[8..12])) else {
        return Ok(None);
    };
    let length = if is_little_endian { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) } as usize;
    // The analysis reads no longer records either.
    if length > Framing::MAX_RECORD_BYTES {
        return Err(io::Error::other(format!("a record of {length} bytes: the stream of packets is damaged")));
    }
    Ok(Some(length))
}

/// Writes the batches of the queue until its end, or until the reader is gone. Returns the records
/// that were written.
pub(super) fn write(source: &RecordSource, mut reader: impl Write) -> RecordTotals {
    let mut written = RecordTotals::default();
    for batch in &source.batches {
        if reader.write_all(&batch.bytes).is_err() {
            break;
        }
        source.waiting_bytes.fetch_sub(batch.bytes.len(), Ordering::AcqRel);
        written.add(batch.totals);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: usize = 100;
    const RECORD_BYTES: usize = RECORD_HEADER_BYTES + PACKET_BYTES;

    /// A stream of packets that are numbered in their first byte.
    fn stream(packets: u8, is_little_endian: bool) -> Vec<u8> {
        let word = |value: u32| if is_little_endian { value.to_le_bytes() } else { value.to_be_bytes() };
        let mut bytes = [word(0xa1b2_c3d4), word(0x0002_0004), word(0), word(0), word(65_535), word(197)].concat();
        for number in 0..packets {
            bytes.extend([word(0), word(0), word(PACKET_BYTES as u32), word(PACKET_BYTES as u32)].concat());
            bytes.extend([number; PACKET_BYTES]);
        }
        bytes
    }

    fn totals(packets: usize) -> RecordTotals {
        RecordTotals { packets: packets as u64, bytes: (packets * PACKET_BYTES) as u64 }
    }

    /// A reader that returns a few bytes at a time.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(buffer.len()).min(7);
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    #[test]
    fn a_reader_that_keeps_up_gets_the_whole_stream() {
        for is_little_endian in [true, false] {
            let sent = stream(50, is_little_endian);
            let (queue, source) = queue(1 << 20);
            let (all, read) = read(Trickle(&sent), &queue);
            drop(queue);
            let mut received = Vec::new();
            assert_eq!((all, write(&source, &mut received)), (totals(50), totals(50)));
            assert!(read.is_ok() && received == sent);
        }
    }

    /// Nothing takes batches until the stream ends. The queue has room for 32 records, and batches of
    /// 2 records are dropped.
    #[test]
    fn what_a_slow_reader_misses_is_counted_in_whole_records() {
        let sent = stream(200, true);
        let (queue, source) = queue(FILE_HEADER_BYTES + 32 * RECORD_BYTES);
        let (all, read) = read(Trickle(&sent), &queue);
        drop(queue);
        let mut received = Vec::new();
        let written = write(&source, &mut received);
        assert!(read.is_ok());
        assert_eq!(all, totals(200));
        assert!((32..=34).contains(&written.packets), "{written:?}");
        assert_eq!(written, totals(written.packets as usize));
        let (header, records) = received.split_at(FILE_HEADER_BYTES);
        assert_eq!(header, &sent[..FILE_HEADER_BYTES]);
        let numbers: Vec<u8> = records.chunks(RECORD_BYTES).map(|record| record[RECORD_HEADER_BYTES]).collect();
        assert_eq!(numbers[..32], (0..32).collect::<Vec<u8>>()[..], "the first ones fit");
        assert_eq!(numbers.last(), Some(&199), "the last ones wait");
        assert_eq!(records.len() % RECORD_BYTES, 0, "whole records only");
    }

    #[test]
    fn a_damaged_stream_and_a_reader_that_is_gone_end_the_work() {
        let mut sent = stream(3, true);
        let at = FILE_HEADER_BYTES + 2 * RECORD_BYTES + 8;
        sent[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let (queue, source) = queue(1000);
        let (all, damaged) = read(&sent[..], &queue);
        assert_eq!(all, totals(2));
        assert!(damaged.unwrap_err().to_string().contains("a record of 4294967295 bytes"));
        drop(source);
        assert_eq!(read(&stream(3, true)[..], &queue).0, totals(3));
        let empty: &[u8] = &[];
        assert_eq!(read(empty, &queue).0, totals(0));
    }
}
