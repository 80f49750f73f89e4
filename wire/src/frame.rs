//! Frames: four bytes of length, then so many bytes. The length is checked against a limit before
//! anything is allocated.

use std::io::{self, IoSlice};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Read at once when the length of the next frame is not known yet: small answers arrive whole.
const READ_AHEAD_BYTES: usize = 8 << 10;
/// Parts given to the system in one call.
const SLICES_MAX: usize = 64;

/// What ends the reading of frames.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The peer closed between two frames.
    #[error("closed by the broker")]
    Closed,
    /// The peer closed within a frame, or the system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The length is above the limit.
    #[error("{announced} bytes announced")]
    Oversize {
        /// As announced.
        announced: u64,
    },
}

/// Reads frames one after the other.
#[derive(Debug)]
pub(crate) struct FrameReader {
    limit: usize,
    ahead: BytesMut,
    /// A frame too long for the look-ahead: its buffer and whole length.
    long: Option<(BytesMut, usize)>,
}

impl FrameReader {
    /// Refuses frames of more than `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            ahead: BytesMut::new(),
            long: None,
        }
    }

    /// The next frame without its length. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream ends or the frame is too long; the stream is of no use then.
    pub(crate) async fn next<R>(&mut self, io: &mut R) -> Result<Bytes, ReadError>
    where
        R: AsyncRead + Unpin,
    {
        loop {
            if let Some((frame, length)) = &mut self.long {
                let missing = *length - frame.len();
                if missing == 0 {
                    let (frame, _) = self.long.take().expect("it was just there");
                    return Ok(frame.freeze());
                }
                if io.read_buf(&mut frame.limit(missing)).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                continue;
            }
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            if self.long.is_some() {
                continue;
            }
            self.ahead.reserve(READ_AHEAD_BYTES);
            if io.read_buf(&mut self.ahead).await? == 0 {
                return if self.ahead.is_empty() {
                    Err(ReadError::Closed)
                } else {
                    Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
                };
            }
        }
    }

    /// A frame that was read ahead whole; starts a long one when it was not.
    fn buffered(&mut self) -> Result<Option<Bytes>, ReadError> {
        let Some(length) = self.ahead.first_chunk::<4>() else {
            return Ok(None);
        };
        // A negative length is a huge one as unsigned, and so too long.
        let announced = u32::from_be_bytes(*length);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(ReadError::Oversize {
                announced: u64::from(announced),
            });
        }
        if self.ahead.len() >= 4 + length {
            self.ahead.advance(4);
            return Ok(Some(self.ahead.split_to(length).freeze()));
        }
        if 4 + length > READ_AHEAD_BYTES {
            self.ahead.advance(4);
            let mut frame = BytesMut::with_capacity(length);
            frame.extend_from_slice(&self.ahead);
            self.ahead.clear();
            self.long = Some((frame, length));
        }
        Ok(None)
    }
}

/// Writes all parts in order and flushes.
pub(crate) async fn write_parts<W>(io: &mut W, parts: &[Bytes]) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let mut first = 0;
    // Bytes of `parts[first]` already written.
    let mut offset = 0;
    while first < parts.len() {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&parts[first..]) {
            let from = if count == 0 { offset } else { 0 };
            *slice = IoSlice::new(&part[from..]);
            count += 1;
        }
        let mut written = io.write_vectored(&slices[..count]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while written > 0 {
            let left = parts[first].len() - offset;
            if written < left {
                offset += written;
                break;
            }
            written -= left;
            first += 1;
            offset = 0;
        }
    }
    io.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Vec::new();
        for body in bodies {
            stream.extend_from_slice(&u32::try_from(body.len()).expect("small").to_be_bytes());
            stream.extend_from_slice(body);
        }
        stream
    }

    async fn read_all(stream: &[u8], limit: usize) -> (Vec<Bytes>, ReadError) {
        let mut reader = FrameReader::new(limit);
        let mut io = stream;
        let mut frames = Vec::new();
        loop {
            match reader.next(&mut io).await {
                Ok(frame) => frames.push(frame),
                Err(fault) => return (frames, fault),
            }
        }
    }

    #[tokio::test]
    async fn frames_of_all_sizes_are_read_as_written() {
        let bodies: Vec<Vec<u8>> = [0, 1, 8187, 8188, 8189, 100_000, 3]
            .map(|size| vec![u8::try_from(size % 251).expect("small"); size])
            .into();
        let (frames, end) = read_all(&framed(&bodies), 100_000).await;
        assert_eq!(frames, bodies);
        assert!(matches!(end, ReadError::Closed));
    }

    #[tokio::test]
    async fn a_frame_above_the_limit_is_refused_at_its_length() {
        let (frames, end) = read_all(&[0x7F, 0xFF, 0xFF, 0xFF], 1 << 20).await;
        assert!(frames.is_empty());
        assert!(matches!(end, ReadError::Oversize { announced } if announced == 0x7FFF_FFFF));
        let (_, end) = read_all(&[0xFF; 4], usize::MAX >> 33).await;
        assert!(matches!(end, ReadError::Oversize { .. }), "negative");
    }

    #[tokio::test]
    async fn an_end_within_a_frame_is_no_clean_close() {
        for cut in 1..=20 {
            let stream = framed(&[vec![1; 16]]);
            let (_, end) = read_all(&stream[..cut], 100).await;
            let clean = matches!(end, ReadError::Closed);
            assert_eq!(clean, cut == 20, "cut at {cut}: {end:?}");
        }
    }

    #[tokio::test]
    async fn reading_that_is_given_up_loses_nothing() {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        let body: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
        let stream = framed(&[body.clone(), b"next".to_vec()]);
        let writing = tokio::spawn(async move { theirs.write_all(&stream).await });
        let mut reader = FrameReader::new(1 << 20);
        let mut frames = Vec::new();
        while frames.len() < 2 {
            tokio::select! {
                biased;
                frame = reader.next(&mut ours) => frames.push(frame.expect("a frame")),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(frames, [Bytes::from(body), Bytes::from_static(b"next")]);
        writing.await.expect("no panic").expect("written");
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_nor_pass_the_limit(stream in prop::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let (frames, _) = runtime.block_on(read_all(&stream, 64));
            prop_assert!(frames.iter().all(|frame| frame.len() <= 64));
        }

        #[test]
        fn parts_are_written_in_order_whatever_the_system_takes(sizes in prop::collection::vec(1_usize..300, 1..200), pipe in 1_usize..97) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let parts: Vec<Bytes> = sizes.iter().enumerate().map(|(i, size)| Bytes::from(vec![(i % 251) as u8; *size])).collect();
            let expected = parts.concat();
            let read = runtime.block_on(async {
                let (mut ours, mut theirs) = tokio::io::duplex(pipe);
                let mut read = Vec::new();
                let (written, got) = tokio::join!(
                    async { let done = write_parts(&mut ours, &parts).await; drop(ours); done },
                    theirs.read_to_end(&mut read),
                );
                written.expect("written");
                got.expect("read");
                read
            });
            prop_assert_eq!(read, expected);
        }
    }
}
