//! Reading an untrusted file, gzipped or not, with its position.

use crate::error::reserve;
use crate::{DataError, Place, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Deflate cannot expand a byte to more than this many (RFC 1951: 258 bytes for two bits).
const MAX_EXPANSION: u64 = 1032;
/// How much is allocated ahead of data that has not yet arrived from a decompressor.
const STEP: u64 = 1 << 20;

/// Bytes that `stored` bytes can decompress to at most.
pub(super) fn most_from_deflate(stored: u64) -> u64 {
    stored.saturating_mul(MAX_EXPANSION)
}

enum Stream<'a> {
    Plain(Box<dyn BufRead + 'a>),
    Gzip(Box<MultiGzDecoder<Box<dyn BufRead + 'a>>>),
}

/// A file under reading.
pub(super) struct Input<'a> {
    path: PathBuf,
    stream: Stream<'a>,
    at: u64,
    /// Bytes of the file as it is stored.
    size: u64,
    /// Bytes that the stream can give at most.
    holds: u64,
    limit: u64,
}

/// Opens a regular file for reading and gives its size.
pub(super) fn open_regular(path: &Path) -> Result<(File, u64)> {
    kiln_files::open_regular(path).map_err(DataError::io(path, "open"))
}

impl<'a> Input<'a> {
    /// Opens a file, decompressing it when it starts with gzip's magic; at most `limit` bytes are read from it.
    pub(super) fn open(path: &Path, limit: u64) -> Result<Input<'static>> {
        let (file, size) = open_regular(path)?;
        Input::new(path, Box::new(BufReader::new(file)), size, limit)
    }

    /// Reads bytes in memory; `name` is what messages call them.
    pub(super) fn bytes(name: &Path, bytes: &'a [u8], limit: u64) -> Result<Input<'a>> {
        Input::new(name, Box::new(bytes), bytes.len() as u64, limit)
    }

    fn new(path: &Path, mut raw: Box<dyn BufRead + 'a>, size: u64, limit: u64) -> Result<Self> {
        let head = raw.fill_buf().map_err(DataError::io(path, "read"))?;
        let gzip = head.starts_with(&[0x1f, 0x8b]);
        Ok(Input {
            path: path.to_path_buf(),
            stream: if gzip {
                Stream::Gzip(Box::new(MultiGzDecoder::new(raw)))
            } else {
                Stream::Plain(raw)
            },
            at: 0,
            size,
            holds: if gzip { most_from_deflate(size) } else { size },
            limit,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file as it is stored.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let got = self.read_up_to(&mut bytes)?;
        if got < N {
            return Err(self.truncated(got as u64, N as u64));
        }
        self.at += N as u64;
        Ok(bytes)
    }

    /// The next `count` bytes. Refused before allocating when the limit or the size of the file forbids them; memory
    /// for data that a decompressor has yet to give grows with the data.
    pub(super) fn take(&mut self, count: u64, what: &'static str) -> Result<Vec<u8>> {
        if count > self.limit {
            return Err(DataError::TooLarge {
                path: self.path.clone(),
                place: Place::Byte(self.at),
                what,
                found: count,
                limit: self.limit,
            });
        }
        let left = self.holds.saturating_sub(self.at);
        if count > left {
            return Err(self.truncated(left, count));
        }
        let step = match self.stream {
            Stream::Plain(_) => count,
            Stream::Gzip(_) => STEP,
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            let have = bytes.len();
            // Doubles from `step`, so that growing stays linear; the limit keeps this within memory's range.
            let more = (count - have as u64).min(step.max(have as u64)) as usize;
            reserve(&mut bytes, more, what)?;
            bytes.resize(have + more, 0);
            let got = self.read_up_to(&mut bytes[have..])?;
            if got < more {
                return Err(self.truncated((have + got) as u64, count));
            }
        }
        self.at += count;
        Ok(bytes)
    }

    /// Checks that nothing follows; for gzip this also checks the checksum.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.read_up_to(&mut [0])? > 0 {
            return Err(DataError::Trailing {
                path: self.path.clone(),
                place: Place::Byte(self.at),
            });
        }
        Ok(())
    }

    fn truncated(&self, found: u64, expected: u64) -> DataError {
        DataError::Truncated {
            path: self.path.clone(),
            place: Place::Byte(self.at),
            found,
            expected,
        }
    }

    /// Fills as much of `bytes` as there is; fewer only at the end of the file.
    fn read_up_to(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < bytes.len() {
            let read = match &mut self.stream {
                Stream::Plain(r) => r.read(&mut bytes[got..]),
                Stream::Gzip(r) => r.read(&mut bytes[got..]),
            };
            match read {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A gzip stream that stops before its end mark.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.truncated(got as u64, bytes.len() as u64));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                    return Err(DataError::Decode {
                        path: self.path.clone(),
                        place: Place::Byte(self.at + got as u64),
                        format: "gzip",
                        reason: e.to_string(),
                    });
                }
                Err(source) => {
                    return Err(DataError::Io {
                        path: self.path.clone(),
                        action: "read",
                        source,
                    });
                }
            }
        }
        Ok(got)
    }
}
