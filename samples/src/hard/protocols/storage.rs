//! Storage protocols over reliable connections: SRP, iSER, SMB Direct.
//!
//! In all of them the client sends commands; the server moves the data by RDMA and sends responses.

use ibscope_parsers::frame::LinkType;

use super::super::Recording;
use super::{Channel, ChannelSide, Conversation};
use crate::Random;

/// Lengths of the data in bytes.
const SIZES: [u64; 5] = [512, 4096, 8192, 65_536, 131_072];

/// A command of a client.
struct StorageCommand {
    bytes: usize,
    is_write: bool,
    address: u64,
    key: u32,
    tag: u64,
}

/// Runs `operations` commands; `make` builds the request and the response SEND of each.
fn commands(
    talk: &Conversation,
    link_type: LinkType,
    random: &mut Random,
    login: (&[u8], &[u8]),
    make: impl Fn(&StorageCommand, &mut Random) -> (Vec<u8>, Vec<u8>),
) -> Recording {
    let psns = [random.next() as u32, random.next() as u32];
    let mut channel = Channel::new(link_type, talk.client, talk.server, psns, talk.start_ns);
    channel.send(ChannelSide::Client, login.0);
    channel.send(ChannelSide::Server, login.1);
    for operation in 0..talk.operations {
        channel.time_ns = channel.time_ns.max(talk.start_ns + operation * talk.step_ns);
        let command = StorageCommand {
            bytes: SIZES[random.below(SIZES.len() as u64) as usize] as usize,
            is_write: random.below(2) == 0,
            address: 0xFFFF_8880_0000_0000 | random.below(1 << 30) << 12,
            key: random.next() as u32,
            tag: operation,
        };
        let (request, response) = make(&command, random);
        channel.send(ChannelSide::Client, &request);
        let data = block(command.bytes, random);
        let place = (command.address, command.key);
        // The server READs the data of a write, and WRITEs the data of a read.
        if command.is_write {
            channel.read(ChannelSide::Server, place, &data);
        } else {
            channel.write(ChannelSide::Server, place, &data);
        }
        channel.send(ChannelSide::Server, &response);
    }
    channel.finish()
}

/// Disk data: zeros, text or noise.
pub(super) fn block(bytes: usize, random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => vec![0; bytes],
        1 => b"recorded data on a disk\n".iter().copied().cycle().take(bytes).collect(),
        _ => (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect(),
    }
}

/// SCSI READ(10) or WRITE(10).
fn cdb(command: &StorageCommand, random: &mut Random) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = if command.is_write { 0x2A } else { 0x28 };
    cdb[2..6].copy_from_slice(&(random.below(1 << 24) as u32).to_be_bytes());
    cdb[7..9].copy_from_slice(&((command.bytes / 512) as u16).to_be_bytes());
    cdb
}

/// SCSI RDMA Protocol (T10 SRP): `SRP_CMD` begins with 2, `SRP_RSP` with 0xC1.
#[must_use]
pub fn srp(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    // Login uses CM messages; the first SENDs request the list of units.
    let mut first = vec![0x02, 0, 0, 0, 0, 0x10, 0, 1];
    first.resize(64, 0);
    let mut answer = vec![0xC1, 0, 0, 0, 0, 0, 0, 1];
    answer.resize(36, 0);
    commands(talk, link_type, random, (&first, &answer), |command, random| {
        // Opcode, notification, 3 reserved, formats of the descriptors (direct), their counts, tag.
        let format = if command.is_write { 0x10 } else { 0x01 };
        let mut request = vec![0x02, 0, 0, 0, 0, format, u8::from(command.is_write), u8::from(!command.is_write)];
        request.extend(command.tag.to_be_bytes());
        request.extend([0; 4]);
        // Unit, reserved, task attribute, reserved, additional bytes.
        request.extend([0; 8]);
        request.extend([0; 4]);
        request.extend(cdb(command, random));
        request.extend(command.address.to_be_bytes());
        request.extend(command.key.to_be_bytes());
        request.extend((command.bytes as u32).to_be_bytes());
        // Opcode, notification, 2 reserved, credits, tag, 2 reserved, flags, status, lengths.
        let mut response = vec![0xC1, 0, 0, 0];
        response.extend(1u32.to_be_bytes());
        response.extend(command.tag.to_be_bytes());
        response.resize(36, 0);
        (request, response)
    })
}

/// iSER (RFC 7145): a header of 28 bytes before every iSCSI PDU.
#[must_use]
pub fn iser(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    let header = |flags: u8, command: Option<&StorageCommand>| {
        let mut header = vec![flags, 0, 0, 0];
        for is_write in [true, false] {
            let own = command.filter(|command| command.is_write == is_write);
            header.extend(own.map_or(0, |command| command.key).to_be_bytes());
            header.extend(own.map_or(0, |command| command.address).to_be_bytes());
        }
        header
    };
    // Control type without steering tags; iSCSI login request and response with key=value text.
    let mut login = header(0x10, None);
    login.extend([0x43, 0x87, 0, 0, 0, 0, 0, 40]);
    login.resize(28 + 48, 0);
    login.extend(b"InitiatorName=iqn.2001-04.test:host\0\0\0\0\0");
    let mut accepted = header(0x10, None);
    accepted.extend([0x23, 0x87, 0, 0, 0, 0, 0, 0]);
    accepted.resize(28 + 48, 0);
    commands(talk, link_type, random, (&login, &accepted), |command, random| {
        let flags = if command.is_write { 0x18 } else { 0x14 };
        let mut request = header(flags, Some(command));
        // Opcode SCSI command, flags, 2 reserved, lengths, unit, task tag, length, numbers, CDB.
        request.extend([0x01, if command.is_write { 0xA1 } else { 0xC1 }, 0, 0, 0, 0, 0, 0]);
        request.extend([0; 8]);
        request.extend((command.tag as u32).to_be_bytes());
        request.extend((command.bytes as u32).to_be_bytes());
        request.extend((command.tag as u32 + 1).to_be_bytes());
        request.extend((command.tag as u32).to_be_bytes());
        request.extend(cdb(command, random));
        let mut response = header(0x10, None);
        response.extend([0x21, 0x80, 0, 0, 0, 0, 0, 0]);
        response.extend([0; 8]);
        response.extend((command.tag as u32).to_be_bytes());
        response.resize(28 + 48, 0);
        (request, response)
    })
}

/// SMB Direct (MS-SMBD): negotiation, then data transfer messages with SMB2 PDUs inside.
#[must_use]
pub fn smb_direct(talk: &Conversation, link_type: LinkType, random: &mut Random) -> Recording {
    // Versions 1.0, credits, sizes.
    let mut negotiate = vec![0, 1, 0, 1, 0, 0, 255, 0];
    for size in [1364u32, 8192, 1_048_576] {
        negotiate.extend(size.to_le_bytes());
    }
    let mut negotiated = vec![0, 1, 0, 1, 0, 1, 0, 0, 255, 0, 255, 0, 0, 0, 0, 0];
    for size in [1_048_576u32, 1364, 8192, 1_048_576] {
        negotiated.extend(size.to_le_bytes());
    }
    commands(talk, link_type, random, (&negotiate, &negotiated), |command, _| {
        let smb = |flags: u8| {
            let mut smb = vec![0xFE, b'S', b'M', b'B', 64, 0, 1, 0, 0, 0, 0, 0];
            smb.extend([if command.is_write { 9 } else { 8 }, 0, 10, 0, flags, 0, 0, 0, 0, 0, 0, 0]);
            smb.extend(command.tag.to_le_bytes());
            smb.resize(64, 0);
            smb
        };
        // Credits requested and granted, flags, reserved, remaining, offset, length, padding.
        let transfer = |pdu: Vec<u8>| {
            let mut transfer = vec![255, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0];
            transfer.extend((pdu.len() as u32).to_le_bytes());
            transfer.extend([0; 4]);
            [transfer, pdu].concat()
        };
        let mut request = smb(0);
        request.extend([49, 0, 0, 0]);
        request.extend((command.bytes as u32).to_le_bytes());
        request.extend([0; 32]);
        // Buffer descriptor: offset, token, length.
        request.extend(command.address.to_le_bytes());
        request.extend(command.key.to_le_bytes());
        request.extend((command.bytes as u32).to_le_bytes());
        let mut response = smb(1);
        response.extend([17, 0, 0, 0]);
        response.extend((command.bytes as u32).to_le_bytes());
        response.extend([0; 8]);
        (transfer(request), transfer(response))
    })
}
