//! Captures crafted to cost time and memory: every packet is the worst case for some part of the
//! analysis.
//!
//! The sender of a capture chooses its contents, so 1 MiB of input must stay within a stated time
//! and memory. Each [`CraftedCapture`] is a case that once took time quadratic in its packets, or
//! worse. Checksums are left empty.

/// A worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CraftedCapture {
    /// Connections whose keys collide under foldhash's constant seed.
    Colliding,
    /// A job in which each connection is detected on its own: rank 0 talks to every other rank.
    Star,
    /// A ring of ranks on two ports: nearly all pairs of ranks share a port.
    Crowded,
    /// Jobs of two ranks on the same two ports, one after the other.
    Alike,
    /// Many pairs of ports, each active in a different second.
    Days,
    /// UCX connection messages with as many queue pairs as they can list, all of one endpoint.
    Lanes,
    /// A port of many ranks that acknowledges requests of many ports which were not captured.
    OneWay,
}

/// Bytes of the file header and of the additional messages of the first two ranks.
const START_BYTES: usize = 512;
/// Unit of the number of ranks: it has many divisors, so the ranks form many possible grids.
const MANY_DIVISORS: usize = 720;
const SEND_ONLY: u8 = 0x04;
const ACKNOWLEDGE: u8 = 0x11;
/// Lower queue pair numbers belong to services.
const FIRST_QPN: u32 = 0x100;
const FIRST_LID: u16 = 1;
/// Last unicast LID.
const LAST_LID: u16 = 0xBFFF;

impl CraftedCapture {
    /// All cases.
    pub const ALL: [Self; 7] =
        [Self::Colliding, Self::Star, Self::Crowded, Self::Alike, Self::Days, Self::Lanes, Self::OneWay];

    /// Name used in messages and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Colliding => "colliding",
            Self::Star => "star",
            Self::Crowded => "crowded",
            Self::Alike => "alike",
            Self::Days => "days",
            Self::Lanes => "lanes",
            Self::OneWay => "one-way",
        }
    }

    /// Ethernet if GIDs identify the endpoints, otherwise native InfiniBand.
    const fn link_type(self) -> u8 {
        if matches!(self, Self::Colliding) { 1 } else { 247 }
    }

    /// Generates the capture, as large as possible within `bytes`.
    #[must_use]
    pub fn capture(self, bytes: usize) -> Vec<u8> {
        let mut file = CraftedFile::new(self.link_type(), bytes);
        match self {
            Self::Colliding => colliding(&mut file),
            Self::Star => star(&mut file),
            Self::Crowded => {
                let ranks = bytes.saturating_sub(START_BYTES) / CROWDED_RANK_BYTES;
                crowded(&mut file, if ranks < MANY_DIVISORS { ranks } else { ranks / MANY_DIVISORS * MANY_DIVISORS });
            }
            Self::Alike => alike(&mut file),
            Self::Days => days(&mut file),
            Self::Lanes => lanes(&mut file),
            Self::OneWay => one_way(&mut file, bytes.saturating_sub(START_BYTES) / ONE_WAY_RANK_BYTES),
        }
        file.bytes
    }
}

/// Fields of a packet other than its addresses.
#[derive(Clone, Copy)]
struct CraftedMessage<'a> {
    opcode: u8,
    dest_qp: u32,
    psn: u32,
    extension: &'a [u8],
    payload: &'a [u8],
}

/// A pcap file in microseconds.
struct CraftedFile {
    bytes: Vec<u8>,
    most_bytes: usize,
    time_us: u64,
}

impl CraftedFile {
    fn new(link_type: u8, most_bytes: usize) -> Self {
        let mut bytes = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
        bytes.extend([link_type, 0, 0, 0]);
        Self { bytes, most_bytes, time_us: 1_700_000_000_000_000 }
    }

    /// True if `bytes` more bytes fit.
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes <= self.most_bytes
    }

    fn record(&mut self, packet: &[u8]) {
        let (seconds, micros) = (self.time_us / 1_000_000, self.time_us % 1_000_000);
        for word in [seconds as u32, micros as u32, packet.len() as u32, packet.len() as u32] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(packet);
        self.time_us += 1;
    }

    /// A packet between two LIDs.
    fn send(&mut self, src: u16, dst: u16, message: CraftedMessage<'_>) {
        let after = after_network(message);
        let words = ((8 + after.len()) / 4) as u16;
        let mut packet = vec![0, 2];
        packet.extend([dst, words, src].iter().flat_map(|word| word.to_be_bytes()));
        packet.extend(after);
        packet.extend([0; 2]);
        self.record(&packet);
    }

    /// A RoCE v1 packet between two GIDs: Ethernet, GRH, BTH.
    fn send_global(&mut self, src: u128, dst: u128, message: CraftedMessage<'_>) {
        let after = after_network(message);
        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x89, 0x15, 0x60, 0, 0, 0];
        packet.extend((after.len() as u16).to_be_bytes());
        packet.extend([0x1B, 64]);
        packet.extend([src, dst].iter().flat_map(|gid| gid.to_be_bytes()));
        packet.extend(after);
        self.record(&packet);
    }

    /// One message in each direction between two queue pairs, each with the acknowledgement that
    /// links the queue pairs.
    fn exchange(&mut self, ends: [(u16, u32); 2], psn: u32, payloads: [&[u8]; 2]) {
        for (from, payload) in [0, 1].into_iter().zip(payloads) {
            let ((src, src_qp), (dst, dest_qp)) = (ends[from], ends[1 - from]);
            self.send(src, dst, CraftedMessage { opcode: SEND_ONLY, dest_qp, psn, extension: &[], payload });
            self.acknowledge((dst, src, src_qp), psn, 1);
        }
    }

    fn acknowledge(&mut self, (src, dst, dest_qp): (u16, u16, u32), psn: u32, messages: u8) {
        let extension = &[0x1F, 0, 0, messages];
        self.send(src, dst, CraftedMessage { opcode: ACKNOWLEDGE, dest_qp, psn, extension, payload: &[] });
    }
}

/// BTH, extension headers, payload and an empty ICRC. Requests ask for an acknowledgement.
fn after_network(message: CraftedMessage<'_>) -> Vec<u8> {
    let CraftedMessage { opcode, dest_qp, psn, extension, payload } = message;
    let pad = payload.len().wrapping_neg() % 4;
    let asks = if opcode == SEND_ONLY { 1 << 31 } else { 0 };
    let mut bytes = vec![opcode, 0x40 | (pad as u8) << 4, 0xFF, 0xFF];
    bytes.extend(dest_qp.to_be_bytes());
    bytes.extend((psn | asks).to_be_bytes());
    bytes.extend(extension);
    bytes.extend(payload);
    bytes.resize(bytes.len() + pad + 4, 0);
    bytes
}

/// An eager message of Open MPI's `ob1` over `openib`, on `MPI_COMM_WORLD`.
fn ob1(rank: u32) -> Vec<u8> {
    let mut payload = vec![0x41, 0, 0, 0, 0x41, 0, 0, 0];
    payload.extend(rank.to_le_bytes());
    payload.extend([42, 0, 0, 0, 1, 0, 0, 0]);
    payload
}

/// An eager message of Open MPI over UCX, on `MPI_COMM_WORLD`.
fn ucx(rank: u64) -> Vec<u8> {
    let mut payload = vec![2];
    payload.extend((42_u64 << 40 | rank << 20).to_le_bytes());
    payload.extend([0; 3]);
    payload
}

fn colliding(file: &mut CraftedFile) {
    /// This half of an address gives zero when foldhash multiplies it with its constant seed.
    const ZERO: u128 = 0xC0AC_29B7_C97C_50DD;
    let unicast = 0x2001_u128 << 112;
    let message = CraftedMessage { opcode: SEND_ONLY, dest_qp: FIRST_QPN, psn: 0, extension: &[], payload: &[] };
    for number in 0_u128.. {
        if !file.has_room(90) {
            return;
        }
        file.send_global(unicast | number << 64 | ZERO, unicast | 1, message);
    }
}

fn star(file: &mut CraftedFile) {
    for (lid, rank) in (FIRST_LID + 1..LAST_LID).zip(1_u32..) {
        if !file.has_room(130) {
            return;
        }
        for (src, dst, sender) in [(FIRST_LID, lid, 0), (lid, FIRST_LID, rank)] {
            // Detection of a job needs two ranks that name themselves three times.
            for psn in 0..if rank == 1 { 3 } else { 1 } {
                let dest_qp = FIRST_QPN + rank;
                file.send(
                    src,
                    dst,
                    CraftedMessage { opcode: SEND_ONLY, dest_qp, psn, extension: &[], payload: &ob1(sender) },
                );
            }
        }
    }
}

/// Two messages and two acknowledgements.
const CROWDED_RANK_BYTES: usize = 216;

fn crowded(file: &mut CraftedFile, ranks: usize) {
    let ranks = ranks as u32;
    let port = |rank: u32| FIRST_LID + (rank % 2) as u16;
    for rank in 0..ranks {
        let next = (rank + 1) % ranks;
        let ends = [(port(rank), FIRST_QPN + 2 * rank), (port(next), FIRST_QPN + 2 * rank + 1)];
        for again in 0..if rank == 0 { 3 } else { 1 } {
            file.exchange(ends, 4 * rank + again, [&ob1(rank), &ob1(next)]);
        }
    }
}

fn alike(file: &mut CraftedFile) {
    for number in 0_u32.. {
        if !file.has_room(700) {
            return;
        }
        let ends = [(FIRST_LID, FIRST_QPN + 2 * number), (FIRST_LID + 1, FIRST_QPN + 2 * number + 1)];
        for again in 0..3 {
            file.exchange(ends, 4 * number + again, [&ucx(0), &ucx(1)]);
        }
    }
}

fn days(file: &mut CraftedFile) {
    /// Ports on each side.
    const PORTS: u32 = 100;
    for number in 0_u32.. {
        if !file.has_room(70) {
            return;
        }
        let src = FIRST_LID + (number % PORTS) as u16;
        let dst = FIRST_LID + (PORTS + number / PORTS % PORTS) as u16;
        let message =
            CraftedMessage { opcode: SEND_ONLY, dest_qp: FIRST_QPN, psn: number, extension: &[], payload: &ob1(0) };
        file.send(src, dst, message);
        file.time_us += 1_000_000;
    }
}

fn lanes(file: &mut CraftedFile) {
    /// Length of an address that the analysis keeps.
    const ADDRESS_BYTES: usize = 1 << 10;
    for number in 0_u32.. {
        if !file.has_room(ADDRESS_BYTES + 80) {
            return;
        }
        let (from, to) = (u64::from(number % 2), u64::from(1 - number % 2));
        // Wire-up message: id, reply, error mode, connection, both endpoints, then the address:
        // flags, worker, lanes.
        let mut payload = vec![1, 2, 0, 0, 0];
        payload.extend((from + 1).to_le_bytes());
        payload.extend((to + 1).to_le_bytes());
        payload.push(0);
        payload.extend((0xABCD_0000 + from).to_le_bytes());
        payload.push(0x40);
        for lane in 0..150 {
            let qpn = (FIRST_QPN + number * 150 + lane).to_le_bytes();
            payload.extend([4, 0, qpn[0], qpn[1], qpn[2], if lane == 149 { 0x80 } else { 0 }]);
        }
        let (src, dst) = (FIRST_LID + from as u16, FIRST_LID + to as u16);
        let dest_qp = FIRST_QPN + number;
        file.send(src, dst, CraftedMessage { opcode: SEND_ONLY, dest_qp, psn: 0, extension: &[], payload: &payload });
    }
}

/// Bytes per rank: those of [`CraftedCapture::Crowded`], and an acknowledgement for every second
/// rank.
const ONE_WAY_RANK_BYTES: usize = CROWDED_RANK_BYTES + 46 / 2;

fn one_way(file: &mut CraftedFile, ranks: usize) {
    let ranks = ranks as u32;
    // Even ranks share one port; each odd rank has its own port.
    let port = |rank: u32| if rank.is_multiple_of(2) { FIRST_LID } else { FIRST_LID + 1 + (rank / 2) as u16 };
    for rank in 0..ranks.saturating_sub(1) {
        let ends = [(port(rank), FIRST_QPN + 2 * rank), (port(rank + 1), FIRST_QPN + 2 * rank + 1)];
        for again in 0..if rank == 0 { 3 } else { 1 } {
            file.exchange(ends, 4 * rank + again, [&ob1(rank), &ob1(rank + 1)]);
        }
    }
    for rank in (1..ranks).step_by(2) {
        file.acknowledge((FIRST_LID, port(rank), FIRST_QPN + 2 * ranks + rank), 7, 9);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Endpoint;
    use ibscope_parsers::frame::LinkType;
    use ibscope_parsers::ib::Packet;
    use ibscope_parsers::link::{LinkContent, locate};

    /// Every record parses as the intended packet, and the files have the requested size.
    #[test]
    fn captures_parse_as_intended() {
        for shape in CraftedCapture::ALL {
            let bytes = shape.capture(1 << 18);
            assert!(bytes.len() <= 1 << 18 && bytes.len() > 1 << 17, "{shape:?}: {} bytes", bytes.len());
            assert!(shape.capture(1 << 19).len() > bytes.len() * 3 / 2, "{shape:?}");
            let mut rest = &bytes[24..];
            let mut ports: std::collections::BTreeSet<Endpoint> = std::collections::BTreeSet::new();
            while let Some((header, after)) = rest.split_at_checked(16) {
                let length = u32::from_le_bytes(header[8..12].try_into().expect("length")) as usize;
                let (packet, after) = after.split_at(length);
                let Ok(LinkContent::Infiniband(location)) =
                    locate(LinkType(shape.link_type().into()), packet, length as u32)
                else {
                    panic!("{shape:?}: {packet:?}");
                };
                let read = Packet::parse_strict(packet, &location).expect("a packet");
                assert!(read.bth.dest_qp.value() >= FIRST_QPN, "{shape:?}");
                ports.extend([location.src, location.dst]);
                rest = after;
            }
            assert!(rest.is_empty(), "{shape:?}");
            // The colliding keys are the senders' addresses.
            assert!(ports.len() > if shape == CraftedCapture::Colliding { 1000 } else { 1 }, "{shape:?}");
        }
    }
}
