//! Private data that Open MPI's `openib` BTL puts into CM REQ and REP messages when it connects
//! through RDMA CM.
//!
//! The private data of an `rdma_cm` REQ start with 36 bytes of IP addresses (InfiniBand
//! Architecture, annex A11); those of a REP do not. Both continue with a packed structure
//! (`btl_openib_connect_rdmacm.c`, builds without `AF_IB`; recorded with 4.1):
//!
//! ```text
//! +0 port u16 (network order)  +2 endpoint index u32  +6 queue u8  +7 job id u32  +11 vpid u32
//! ```
//! All fields but the port are little-endian. "vpid" is the sender's rank in `MPI_COMM_WORLD`, so
//! REQ and REP of a connection identify the world ranks of both ends.

use super::bytes;

/// Bytes of addresses that `rdma_cm` puts before the private data of a REQ.
pub const IP_HEADER_BYTES: usize = 36;
/// Length of Open MPI's structure.
const PRIVATE_BYTES: usize = 15;
/// Limit of the queue number; no configuration has as many queues per peer.
const QUEUE_LIMIT: u8 = 32;
/// Limit of ranks per job and of peers per process.
const RANK_LIMIT: u32 = 1 << 20;

/// Description of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmacmPeer {
    /// TCP port that the process's `rdma_cm` listens on, in a REQ. A REP leaves the field
    /// uninitialized (`handle_connect_request`).
    pub port: u16,
    /// Index of the endpoint in the sending process. The peer puts it into immediate data.
    pub endpoint_index: u32,
    /// Number of the receive queue that the connection serves, from 0.
    pub queue: u8,
    /// Job id: family in the upper 16 bits (the first number of `mpirun`'s `JOB [family,1]`), local
    /// number in the lower ones.
    pub job: u32,
    /// Rank of the sending process in `MPI_COMM_WORLD`.
    pub world_rank: u32,
}

/// Parses the private data of a CM REQ (92 bytes, fewer if truncated), which start with the
/// addresses.
#[must_use]
pub fn request(private_data: &[u8]) -> Option<RdmacmPeer> {
    // Major and minor version are 0; the high nibble of the next byte is the IP version.
    let [version, ip_version] = bytes(private_data, 0)?;
    if version != 0 || !matches!(ip_version, 0x40 | 0x60) {
        return None;
    }
    peer(private_data.get(IP_HEADER_BYTES..)?)
}

/// Parses the private data of a CM REP (196 bytes, fewer if truncated).
#[must_use]
pub fn reply(private_data: &[u8]) -> Option<RdmacmPeer> {
    peer(private_data)
}

fn peer(data: &[u8]) -> Option<RdmacmPeer> {
    let peer = RdmacmPeer {
        port: u16::from_be_bytes(bytes(data, 0)?),
        endpoint_index: u32::from_le_bytes(bytes(data, 2)?),
        queue: u8::from_le_bytes(bytes(data, 6)?),
        job: u32::from_le_bytes(bytes(data, 7)?),
        world_rank: u32::from_le_bytes(bytes(data, 11)?),
    };
    let plausible = peer.port != 0
        && peer.endpoint_index < RANK_LIMIT
        && peer.queue < QUEUE_LIMIT
        && peer.job != 0
        && peer.world_rank < RANK_LIMIT;
    // Other users of `rdma_cm` have longer structures; the kernel pads with zeros.
    let rest_is_empty = data.get(PRIVATE_BYTES..)?.iter().all(|&byte| byte == 0);
    (plausible && rest_is_empty).then_some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;
    use hex_literal::hex;

    /// Recorded, Open MPI 4.1.4, JOB [19476,1]: rank 1 on 10.77.0.2 to rank 0 on 10.77.0.1.
    const REQUEST: [u8; 51] = hex!(
        "0040bd52 0000000000000000000000000a4d0002 0000000000000000000000000a4d0001"
        "887a 01000000 00 0100144c 01000000"
    );
    /// Recorded: the reply of rank 0.
    const REPLY: [u8; 15] = hex!("7e3f 01000000 00 0100144c 00000000");

    fn padded(head: &[u8], len: usize) -> Vec<u8> {
        let mut data = Vec::from(head);
        data.resize(len, 0);
        data
    }

    #[test]
    fn both_ends_of_a_recorded_connection() {
        let job = 19476 << 16 | 1;
        let peer = request(&padded(&REQUEST, 92)).unwrap();
        assert_eq!(peer, RdmacmPeer { port: 0x887A, endpoint_index: 1, queue: 0, job, world_rank: 1 });
        let peer = reply(&padded(&REPLY, 196)).unwrap();
        assert_eq!(peer, RdmacmPeer { port: 0x7E3F, endpoint_index: 1, queue: 0, job, world_rank: 0 });
    }

    #[test]
    fn private_data_of_libfabric_are_not_taken() {
        // Recorded: the private data of a REQ and a REP of verbs;ofi_rxm.
        let rxm = hex!("18010204030cbd0100004000004000000001000000e5");
        let mut data = Vec::from(&REQUEST[..IP_HEADER_BYTES]);
        data.extend(rxm);
        assert_eq!(request(&padded(&data, 92)), None);
        assert_eq!(reply(&padded(&hex!("1001000000e5000000400000000100"), 196)), None);
        assert_eq!(request(&[0; 92]), None);
        assert_eq!(reply(&[0; 196]), None);
    }

    #[test]
    fn truncated_private_data_are_rejected() {
        for cut in 0..REQUEST.len() {
            assert_eq!(request(&REQUEST[..cut]), None, "{cut}");
        }
        for cut in 0..REPLY.len() {
            assert_eq!(reply(&REPLY[..cut]), None, "{cut}");
        }
        assert!(request(&REQUEST).is_some() && reply(&REPLY).is_some());
    }

    #[test]
    fn noise_is_not_taken() {
        // The shortest input is the weakest test: no byte follows the structure.
        let rate =
            noise::rate(PRIVATE_BYTES, &[(5, 0), (14, 0)], 2f64.powi(-16), 400_000, |data, _| reply(data).is_some());
        assert!(rate < 1e-7, "{rate}");
    }
}
