//! The streams that a communicator has worked on.

use crate::cuda::Stream;

/// Streams that are remembered before idle ones are forgotten.
const MANY: usize = 16;

/// Streams that operations were enqueued on, each once, the last one at the end.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// Keeps a stream that was used, for the day that the communicator ends.
    #[inline]
    pub(crate) fn remember(&mut self, stream: &Stream) {
        if self.0.last() != Some(stream) {
            self.add(stream);
        }
    }

    #[cold]
    fn add(&mut self, stream: &Stream) {
        match self.0.iter().position(|known| known == stream) {
            Some(at) => {
                let last = self.0.len() - 1;
                self.0.swap(at, last);
            }
            None => {
                if self.0.len() >= MANY {
                    // Streams whose work is done need not be waited for.
                    self.0.retain(|known| !known.is_idle().unwrap_or(false));
                }
                self.0.push(stream.clone());
            }
        }
    }

    pub(crate) fn all(&self) -> &[Stream] {
        &self.0
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
