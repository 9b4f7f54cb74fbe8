//! PNG (ISO/IEC 15948) of 8-bit RGB pixels. plotters writes PNGs to paths only, and without the size in print.

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::io::{self, Write};

/// Encodes `pixels`, three bytes each in rows of `width`, for print at this resolution.
pub(super) fn encode(pixels: &[u8], (width, height): (u32, u32), pixels_per_meter: u32) -> io::Result<Vec<u8>> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    // 8 bits per sample, colour type 2 (RGB), and the only compression, filter method and order of rows.
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    chunk(&mut png, *b"IHDR", &header)?;
    let resolution = [&pixels_per_meter.to_be_bytes()[..], &pixels_per_meter.to_be_bytes(), &[1]].concat();
    chunk(&mut png, *b"pHYs", &resolution)?;
    let mut data = ZlibEncoder::new(Vec::new(), Compression::best());
    for row in pixels.chunks(width.max(1) as usize * 3) {
        // Filter type 0: rows as they are. Areas of one colour need no better one.
        data.write_all(&[0])?;
        data.write_all(row)?;
    }
    chunk(&mut png, *b"IDAT", &data.finish()?)?;
    chunk(&mut png, *b"IEND", &[])?;
    Ok(png)
}

/// Length, type, data, and a CRC over type and data.
fn chunk(png: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut crc = Crc::new();
    crc.update(&kind);
    crc.update(data);
    png.extend_from_slice(&length.to_be_bytes());
    png.extend_from_slice(&kind);
    png.extend_from_slice(data);
    png.extend_from_slice(&crc.sum().to_be_bytes());
    Ok(())
}
