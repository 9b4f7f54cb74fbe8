//! Envelopes and connection messages of MPI libraries: payloads, and the bytes of them that differ
//! from message to message.
//!
//! Open MPI's `ob1` over the `openib` BTL (layout of 4.1, connected by `udcm`), and UCX over RC
//! verbs as Open MPI's `pml/ucx` uses it. Messages of several packets use a rendezvous, in which
//! the sender writes to the receiver's memory: RNDV, PUT, RDMA WRITE, FIN with `ob1`; ready to
//! send, ready to receive, RDMA WRITE, all written with UCX. All messages are on `MPI_COMM_WORLD`
//! and little-endian, as on x86-64.

/// MPI library that sends the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum SampleStack {
    /// Payloads carry no envelope.
    #[default]
    None,
    /// Open MPI, `ob1` over the `openib` BTL.
    Ob1,
    /// Open MPI over UCX with RC queue pairs.
    Ucx,
}

/// Queue pair number of a node's datagrams.
pub(crate) const DATAGRAM_QPN: u32 = 0x40;

/// Varying values of a packet, by kind of payload:
///
/// * messages: the sender's rank, tag, sequence number, number of the message in the capture
/// * UCX wire-up: rank, connection, this end and (in the second byte) the other end, the sender's
///   queue pair
/// * `udcm` datagrams: rank, the receiver's rank, the sender's queue pair, its first PSN
pub(crate) type Words = [u32; 4];

/// One byte of a payload that is taken from [`Words`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueSlot {
    /// Offset from the end of the BTH.
    pub(crate) at: usize,
    word: usize,
    /// Right rotation of the word that moves the byte to the lowest bits.
    shift: u32,
}

impl ValueSlot {
    /// Value of the byte.
    pub(crate) fn value(&self, words: &Words) -> u8 {
        words[self.word].rotate_right(self.shift) as u8
    }
}

/// Extension headers and payload of a packet, with their varying bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateContent {
    /// Extension headers.
    pub(crate) extension: Vec<u8>,
    /// Payload.
    pub(crate) payload: Vec<u8>,
    /// Varying bytes of both.
    pub(crate) slots: Vec<ValueSlot>,
}

impl TemplateContent {
    /// Content without varying bytes.
    pub(crate) fn fixed(extension: &[u8], payload: &[u8]) -> Self {
        Self { extension: extension.to_vec(), payload: payload.to_vec(), slots: Vec::new() }
    }

    /// Appends a little-endian number.
    fn le(mut self, bytes: usize, value: u64) -> Self {
        self.payload.extend_from_slice(&value.to_le_bytes()[..bytes]);
        self
    }

    /// Takes `of_word` bytes of a word, lowest first, for the last `bytes` bytes after the first
    /// `skip` of them.
    fn vary(self, bytes: usize, skip: usize, word: usize, of_word: usize) -> Self {
        let start = self.extension.len() + self.payload.len() - bytes + skip;
        let slots = (0..of_word).map(|byte| ValueSlot { at: start + byte, word, shift: 8 * byte as u32 });
        self.with(slots.collect())
    }

    fn with(mut self, slots: Vec<ValueSlot>) -> Self {
        self.slots.extend(slots);
        self
    }

    /// A pointer whose middle bytes are the number of the message.
    fn pointer(self, high: u64) -> Self {
        self.le(8, high << 40).vary(8, 1, SERIAL, 4)
    }

    /// Receiver's address for the data: 16 MiB apart for each message, repeating after 65536
    /// messages.
    fn address(self) -> Self {
        self.le(8, ADDRESS).vary(8, 3, SERIAL, 2)
    }
}

const RANK: usize = 0;
const TAG: usize = 1;
const SEQUENCE: usize = 2;
const SERIAL: usize = 3;

const ADDRESS: u64 = 0x7F00_0000_0000;
const SENDER_REQUEST: u64 = 0x55;
const RECEIVER_REQUEST: u64 = 0x56;
const FRAGMENT: u64 = 0x57;
/// Job id of `JOB [19476,1]` in Open MPI.
const JOB: u64 = 19476 << 16 | 1;

impl SampleStack {
    /// Envelope of an eager message.
    pub(crate) fn eager(self) -> TemplateContent {
        match self {
            Self::None => TemplateContent::default(),
            Self::Ob1 => ob1_match(0x41),
            Self::Ucx => ucx_tag(2),
        }
    }

    /// Rendezvous request of a message of `mpi_bytes`.
    pub(crate) fn offer(self, mpi_bytes: u64) -> TemplateContent {
        match self {
            Self::None => TemplateContent::default(),
            // Two bytes of padding precede the length.
            Self::Ob1 => ob1_match(0x42).le(2, 0).le(8, mpi_bytes).pointer(SENDER_REQUEST),
            // Endpoint; request; no address, because the receiver must not READ; length.
            Self::Ucx => ucx_tag(9).le(8, 1).pointer(SENDER_REQUEST).le(8, 0).le(8, mpi_bytes).le(1, 0),
        }
    }

    /// Response of the receiver with the address for the data.
    pub(crate) fn grant(self, mpi_bytes: u64) -> TemplateContent {
        let names = |content: TemplateContent| match self {
            Self::Ob1 => content.pointer(SENDER_REQUEST).pointer(FRAGMENT).pointer(RECEIVER_REQUEST).le(8, 0),
            _ => content.pointer(SENDER_REQUEST).pointer(RECEIVER_REQUEST),
        };
        match self {
            Self::None => TemplateContent::default(),
            // The message ends with the keys.
            Self::Ob1 => names(ob1_head(0x48)).address().le(8, mpi_bytes).le(8, 0x1234_0000_1234),
            Self::Ucx => names(TemplateContent::default().le(1, 11)).address().le(8, mpi_bytes).le(8, 0).le(8, 0x1234),
        }
    }

    /// Message of the sender after it has written all data.
    pub(crate) fn done(self, mpi_bytes: u64) -> TemplateContent {
        match self {
            Self::None => TemplateContent::default(),
            Self::Ob1 => ob1_head(0x49).le(8, mpi_bytes).pointer(FRAGMENT),
            Self::Ucx => TemplateContent::default().le(1, 16).pointer(RECEIVER_REQUEST),
        }
    }

    /// Connection message of the sender: a SEND on the connection (UCX), or a datagram (`udcm`).
    pub(crate) fn connection_message(self) -> TemplateContent {
        match self {
            Self::None => TemplateContent::default(),
            Self::Ob1 => udcm_connect(),
            Self::Ucx => ucx_wireup(),
        }
    }
}

/// RETH (address, key, length) of a message that is written to the address of
/// [`SampleStack::grant`]; without a stack all messages use one address.
pub(crate) fn reth(stack: SampleStack, message_bytes: u32, payload: &[u8]) -> TemplateContent {
    let mut extension = ADDRESS.to_be_bytes().to_vec();
    extension.extend_from_slice(&0x1234_u32.to_be_bytes());
    extension.extend_from_slice(&message_bytes.to_be_bytes());
    let content = TemplateContent::fixed(&extension, payload);
    // Bytes 3 and 4 of the address, in the opposite order of the little-endian grant.
    let slots = vec![ValueSlot { at: 4, word: SERIAL, shift: 0 }, ValueSlot { at: 3, word: SERIAL, shift: 8 }];
    if stack == SampleStack::None { content } else { content.with(slots) }
}

/// BTL header and start of the `ob1` header, padded for 64-bit numbers that follow.
fn ob1_head(kind: u64) -> TemplateContent {
    TemplateContent::default().le(4, kind).le(8, kind)
}

/// BTL header and `ob1` header up to the sequence number.
fn ob1_match(kind: u64) -> TemplateContent {
    let head = TemplateContent::default().le(4, kind).le(2, kind).le(2, 0);
    head.le(4, 0).vary(4, 0, RANK, 4).le(4, 0).vary(4, 0, TAG, 2).le(2, 0).vary(2, 0, SEQUENCE, 2)
}

/// Active message id and Open MPI's tag: context in bits 0 to 19, rank in 20 to 39, MPI tag from 40
/// on. Ranks are below 65536, so they span three bytes of the tag.
fn ucx_tag(id: u64) -> TemplateContent {
    let tagged = TemplateContent::default().le(1, id).le(8, 0).vary(8, 5, TAG, 2);
    let start = tagged.payload.len() - 8;
    // The lower half of byte 2 belongs to the context.
    let rank = [(2, 28), (3, 4), (4, 12)];
    let slots = rank.map(|(at, shift)| ValueSlot { at: start + at, word: RANK, shift });
    tagged.with(slots.to_vec())
}

/// Wire-up acknowledgement with both endpoints and the worker's address: its id, and a part that
/// ends with the queue pair.
fn ucx_wireup() -> TemplateContent {
    const ACKNOWLEDGEMENT: u64 = 3;
    let head = TemplateContent::default().le(1, 1).le(1, ACKNOWLEDGEMENT).le(1, 0).le(2, 0);
    let endpoint = |content: TemplateContent, of_word: u32| {
        let content = content.le(8, ADDRESS).vary(8, 1, 1, 4);
        let at = content.payload.len() - 8;
        content.with(vec![ValueSlot { at, word: 2, shift: of_word }])
    };
    let both = endpoint(endpoint(head, 0), 8);
    let worker = both.le(1, 0).le(8, 0x78D7_81F9_26D0_0000).vary(8, 0, RANK, 2);
    worker.le(8, 0x4BE3_33A1_0FB0_8A27).le(2, 0xC003).le(3, 0).vary(3, 0, 3, 3).le(1, 0x80)
}

/// CONNECT with one queue pair.
fn udcm_connect() -> TemplateContent {
    const CONNECT: u64 = 100;
    let big_endian = |content: TemplateContent, word: usize, bytes: usize| {
        let content = content.le(4, 0);
        let end = content.extension.len() + content.payload.len();
        let slots = (0..bytes).map(|byte| ValueSlot { at: end - 1 - byte, word, shift: 8 * byte as u32 });
        content.with(slots.collect())
    };
    // DETH: queue key 0, and the queue pair of the sender's datagrams.
    let [_, qp2, qp1, qp0] = DATAGRAM_QPN.to_be_bytes();
    let head = TemplateContent::fixed(&[0, 0, 0, 0, 0, qp2, qp1, qp0], &[]).le(8, CONNECT);
    let pointers = head.le(8, SENDER_REQUEST << 40 | 0x1000).le(8, SENDER_REQUEST << 40 | 0x2000).le(8, 0);
    let named = pointers.le(4, JOB).le(4, 0).vary(4, 0, RANK, 4);
    // The receiver's rank serves as endpoint index; then port 1 and padding.
    let indexed = big_endian(named, 1, 2).le(8, 1).le(4, 0);
    big_endian(big_endian(indexed, 2, 3), 3, 3)
}
