//! Objects that consist of parts of others: what a program has mapped side by side, under one name for other ranks.
//!
//! Such an object has no memory. Its file says which parts it consists of, and who maps it maps those.

use super::object::{ALIGN, Location, Object};
use super::room::Room;
use std::io;

/// The bit in the label of such objects. The rest of the label is how many parts there are.
const MARK: u64 = 1 << 63;

/// Where the words of a part begin in the file: its place, and how many bytes.
const WORDS: usize = 5;

/// An object that consists of so many bytes at each of these places, one after the other.
pub(crate) fn new(device: i32, parts: &[(Location, u64)]) -> io::Result<Object> {
    let words: Vec<u64> = parts
        .iter()
        .flat_map(|(place, bytes)| {
            let [owner, of, offset, size] = place.words();
            [owner, of, offset, size, *bytes]
        })
        .collect();
    let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
    let object = Object::labelled(device, bytes, MARK | parts.len() as u64)?;
    object.write(&words, 0)?;
    Ok(object)
}

/// Maps all of an object, for good: the address of its first byte. What the file of another process says is not believed.
pub(crate) fn map(object: &Object) -> io::Result<usize> {
    if object.label() & MARK == 0 {
        return object.map();
    }
    let begin = object.begin();
    let room = Room::new(begin.bytes as usize, ALIGN)?;
    let mut at = 0;
    for number in 0..object.label() & !MARK {
        let [owner, of, offset, size, bytes] = object.read::<WORDS>(number * 8 * WORDS as u64)?;
        let place = Location::from_words([owner, of, offset, size]);
        let part = Object::open(&place)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= part.begin().bytes);
        if part.label() & MARK != 0 || !fits {
            return Err(place.gone());
        }
        part.map_at(&room, room.base() + at, offset, bytes as usize)?;
        at += bytes as usize;
    }
    if at as u64 != begin.bytes {
        return Err(begin.gone());
    }
    Ok(room.keep())
}
