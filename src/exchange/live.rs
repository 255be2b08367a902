//! The generations in which exchanges of this process are, at places whose server does not know its
//! clients.
//!
//! Rank 0 removes what is left of earlier generations when all ranks have met in a new one. At other places they have left those
//! by then. Here another thread of each rank may still be in one.

use crate::lock::Mutex;

/// The names of the places, as of [turns](super::turns), and the paths there.
static LIVE: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// One that is in use until this is dropped.
#[derive(Debug)]
pub(super) struct Live(String, String);

impl Live {
    pub(super) fn new(place: &str, path: &str) -> Self {
        let (place, path) = (place.to_owned(), path.to_owned());
        LIVE.lock().push((place.clone(), path.clone()));
        Self(place, path)
    }

    /// Another one at the same place.
    pub(super) fn another(&self, path: &str) -> Self {
        Self::new(&self.0, path)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut live = LIVE.lock();
        if let Some(at) = live.iter().position(|(place, path)| (place, path) == (&self.0, &self.1)) {
            live.swap_remove(at);
        }
    }
}

/// The paths that are in use at a place.
pub(super) fn paths(at: &str) -> Vec<String> {
    LIVE.lock().iter().filter(|(place, _)| place == at).map(|(_, path)| path.clone()).collect()
}
