//! Reads an untrusted file, gzipped or not, and keeps count of the position.

use crate::error::reserve;
use crate::{DataError, Place, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The largest expansion of Deflate: RFC 1951 encodes 258 bytes in two bits at best, which is 1,032 bytes per byte.
const MAX_EXPANSION: u64 = 1032;
/// The first allocation, in bytes, for data from a decompressor.
const STEP: u64 = 1 << 20;

/// The largest number of bytes that `stored` bytes can decompress to.
pub(super) fn most_from_deflate(stored: u64) -> u64 {
    stored.saturating_mul(MAX_EXPANSION)
}

enum Stream<'a> {
    Plain(Box<dyn BufRead + 'a>),
    Gzip(Box<MultiGzDecoder<Box<dyn BufRead + 'a>>>),
}

/// An input being read.
pub(super) struct Input<'a> {
    path: PathBuf,
    stream: Stream<'a>,
    at: u64,
    /// Bytes of the file as it is stored.
    size: u64,
    /// The largest number of bytes that the stream can yield.
    holds: u64,
    limit: u64,
}

/// Opens a regular file for reading; returns it with its size in bytes.
pub(super) fn open_regular(path: &Path) -> Result<(File, u64)> {
    kiln_files::open_regular(path).map_err(DataError::io(path, "open"))
}

impl<'a> Input<'a> {
    /// Opens a file, decompressing it if it starts with gzip's magic bytes; [`take`](Input::take) accepts up to `limit` bytes.
    pub(super) fn open(path: &Path, limit: u64) -> Result<Input<'static>> {
        let (file, size) = open_regular(path)?;
        Input::new(path, Box::new(BufReader::new(file)), size, limit)
    }

    /// Reads bytes in memory; error messages show `name` in place of a path.
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

    /// The size of the stored file in bytes, before decompression.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let got = self.read_up_to(&mut bytes)?;
        if got < N {
            return Err(self.truncated(got as u64, N as u64));
        }
        self.at += N as u64;
        Ok(bytes)
    }

    /// Reads the next `count` bytes. Fails before allocating if the limit or the file's size rules them out; for data from
    /// a decompressor, memory grows as the data arrives. `what` names the data in errors.
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
            // The buffer doubles from `step`, so the cost of growing is linear; `count` is at most the limit.
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

    /// Reads what is left, at most the limit; `what` names the data in errors. Memory grows as the data arrives.
    pub(super) fn rest(&mut self, what: &'static str) -> Result<Vec<u8>> {
        let too_large = |path: &Path, found: u64, limit: u64| DataError::TooLarge {
            path: path.to_path_buf(),
            place: Place::File,
            what,
            found,
            limit,
        };
        let plain = matches!(self.stream, Stream::Plain(_));
        if plain && self.size > self.limit {
            return Err(too_large(&self.path, self.size, self.limit));
        }
        let mut bytes = Vec::new();
        // One byte more than a file has shows its end at once.
        let mut step = if plain { self.size as usize + 1 } else { STEP as usize };
        loop {
            let have = bytes.len();
            reserve(&mut bytes, step, what)?;
            bytes.resize(have + step, 0);
            let got = self.read_up_to(&mut bytes[have..]).map_err(cut_short)?;
            bytes.truncate(have + got);
            self.at += got as u64;
            if bytes.len() as u64 > self.limit {
                return Err(too_large(&self.path, bytes.len() as u64, self.limit));
            }
            if got < step {
                return Ok(bytes);
            }
            step = (STEP as usize).max(bytes.len());
        }
    }

    /// Reads the next bytes, at most `most` and at the end none.
    pub(super) fn some(&mut self, most: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, most, "a part of a file")?;
        bytes.resize(most, 0);
        let got = self.read_up_to(&mut bytes).map_err(cut_short)?;
        bytes.truncate(got);
        self.at += got as u64;
        Ok(bytes)
    }

    /// Checks that no data follows; for gzip this also verifies the checksum.
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

    /// Reads into `bytes` and returns the number of bytes read, which is smaller only at the end of the file.
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
                // A gzip stream that ends before its trailer.
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

/// The error of a gzip stream that is cut short, where the number of bytes that were to come is not known.
fn cut_short(error: DataError) -> DataError {
    match error {
        DataError::Truncated { path, .. } => DataError::Decode {
            path,
            place: Place::File,
            format: "gzip",
            reason: "the file ends before its stream does".to_string(),
        },
        error => error,
    }
}
