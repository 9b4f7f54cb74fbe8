//! The messages of one collective operation, as an algorithm of an MPI library schedules them.

/// A cyclic range of the blocks that an operation moves. `count` 0 is a message without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockRange {
    /// First block.
    pub first: u32,
    /// Number of blocks.
    pub count: u32,
}

/// A message of a schedule. A rank sends the messages of a step after it received those of all
/// earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Number of the step, from 0.
    pub step: u32,
    /// Rank of the sender in the communicator.
    pub src: u32,
    /// Rank of the receiver.
    pub dst: u32,
    /// Blocks that the message carries.
    pub blocks: BlockRange,
    /// True if the message has the tag of the second operation that the algorithm calls.
    pub is_second_tag: bool,
}

/// The messages of one operation in the order in which each rank sends them, sorted by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The messages.
    pub transfers: Vec<Transfer>,
    /// Number of blocks of the whole vector.
    pub blocks: u32,
}

impl Schedule {
    /// A schedule without messages, of a vector of `blocks`.
    pub(super) const fn new(blocks: u32) -> Self {
        Self { transfers: Vec::new(), blocks }
    }

    /// Adds a message of `count` blocks from `first`.
    pub(super) fn send(&mut self, step: u32, (src, dst): (u32, u32), first: u32, count: u32) {
        let first = if self.blocks == 0 { 0 } else { first % self.blocks };
        self.transfers.push(Transfer { step, src, dst, blocks: BlockRange { first, count }, is_second_tag: false });
    }

    /// Adds a message of the whole vector.
    pub(super) fn send_all(&mut self, step: u32, pair: (u32, u32)) {
        self.send(step, pair, 0, self.blocks);
    }

    /// Number of the step after the last one.
    pub(super) fn next_step(&self) -> u32 {
        self.transfers.iter().map(|transfer| transfer.step + 1).max().unwrap_or(0)
    }

    /// Appends the messages of `second`, which start after those of this schedule ended.
    pub(super) fn then(mut self, second: Self, has_second_tag: bool) -> Self {
        let step = self.next_step();
        self.transfers.extend(second.transfers.into_iter().map(|transfer| Transfer {
            step: transfer.step + step,
            is_second_tag: has_second_tag,
            ..transfer
        }));
        self
    }

    /// Sorts the messages by step. Messages of a step keep their order.
    pub(super) fn sorted(mut self) -> Self {
        self.transfers.sort_by_key(|transfer| transfer.step);
        self
    }
}
