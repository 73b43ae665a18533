//! Sets of correlation ids, and what each stands for: dense numbers, of which a capture has as many as API calls.

use crate::base::maps::ByKey;

/// Ids of one chunk: 8 KiB.
const WORDS: usize = 1024;
const BITS: u32 = u64::BITS;
const CHUNK_IDS: u32 = WORDS as u32 * BITS;

#[derive(Debug)]
struct Chunk(Box<[u64; WORDS]>);

impl Default for Chunk {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

/// A set of numbers, a bit each, in chunks: as quick as a bitmap where they are dense, and no larger than they need where
/// they are not.
#[derive(Debug, Default)]
pub(crate) struct IdSet {
    /// By the upper part of an id.
    chunks: ByKey<u32, Chunk>,
}

impl IdSet {
    /// Adds a number.
    pub fn insert(&mut self, id: u32) {
        let (word, bit) = within(id);
        let chunk = self.chunks.entry(id / CHUNK_IDS);
        if let Some(word) = chunk.and_then(|chunk| chunk.0.get_mut(word)) {
            *word |= bit;
        }
    }

    /// Takes a number out; whether it was there.
    pub fn remove(&mut self, id: u32) -> bool {
        let (word, bit) = within(id);
        let chunk = self.chunks.get_mut(id / CHUNK_IDS);
        let Some(word) = chunk.and_then(|chunk| chunk.0.get_mut(word)) else { return false };
        let held = *word & bit != 0;
        *word &= !bit;
        held
    }

    /// Whether it holds a number.
    pub fn contains(&self, id: u32) -> bool {
        let (word, bit) = within(id);
        let chunk = self.chunks.get(id / CHUNK_IDS);
        chunk.and_then(|chunk| chunk.0.get(word)).is_some_and(|word| word & bit != 0)
    }

    /// How many numbers it holds.
    pub fn len(&self) -> u64 {
        self.chunks.values().flat_map(|chunk| chunk.0.iter()).map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many numbers it holds that are larger than this one.
    pub fn len_after(&self, id: u32) -> u64 {
        let first = id.saturating_add(1);
        let near = first..=first | (CHUNK_IDS - 1);
        let in_chunk = near.filter(|one| *one > id && self.contains(*one)).count() as u64;
        let behind = self.chunks.sorted().filter(|(upper, _)| *upper > first / CHUNK_IDS);
        let words = behind.flat_map(|(_, chunk)| chunk.0.iter());
        in_chunk.saturating_add(words.map(|word| u64::from(word.count_ones())).sum())
    }
}

/// Numbers of one chunk of a map: 16 KiB.
const NUMBERS: usize = 4096;
const CHUNK_NUMBERS: u32 = NUMBERS as u32;
/// Stands for no number.
const NO_NUMBER: u32 = u32::MAX;

#[derive(Debug)]
struct NumberChunk(Box<[u32; NUMBERS]>);

impl Default for NumberChunk {
    fn default() -> Self {
        Self(Box::new([NO_NUMBER; NUMBERS]))
    }
}

/// A number below [`u32::MAX`] for each of some ids, in chunks as of an [`IdSet`].
#[derive(Debug, Default)]
pub(crate) struct IdMap {
    chunks: ByKey<u32, NumberChunk>,
}

impl IdMap {
    /// Gives an id its number, unless it has one.
    pub fn insert_first(&mut self, id: u32, number: u32) {
        let chunk = self.chunks.entry(id / CHUNK_NUMBERS);
        let held = chunk.and_then(|chunk| chunk.0.get_mut((id % CHUNK_NUMBERS) as usize));
        if let Some(held) = held.filter(|held| **held == NO_NUMBER) {
            *held = number;
        }
    }

    /// The number of an id. What is asked for mostly lies near to what was asked for last.
    pub fn get(&mut self, id: u32) -> Option<u32> {
        let chunk = self.chunks.get_mut(id / CHUNK_NUMBERS)?;
        chunk.0.get((id % CHUNK_NUMBERS) as usize).copied().filter(|number| *number != NO_NUMBER)
    }
}

/// Its word in a chunk, and its bit there.
fn within(id: u32) -> (usize, u64) {
    ((id % CHUNK_IDS / BITS) as usize, 1_u64 << (id % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_held_once_however_far_apart() {
        let mut ids = IdSet::default();
        assert_eq!(ids.len(), 0);
        for id in [7, 0, u32::MAX, 65_535, 65_536, 7] {
            ids.insert(id);
        }
        assert_eq!(ids.len(), 5);
        assert!([0, 7, 65_535, 65_536, u32::MAX].iter().all(|id| ids.contains(*id)));
        assert!(![1, 8, 65_534, 65_537, u32::MAX - 1].iter().any(|id| ids.contains(*id)));
        assert_eq!(
            [0, 6, 7, 65_534, 65_535, 65_536, u32::MAX].map(|id| ids.len_after(id)),
            [4, 4, 3, 3, 2, 1, 0]
        );
    }

    #[test]
    fn an_id_keeps_its_first_number() {
        let mut ids = IdMap::default();
        for (id, number) in [(0, 7), (4095, 8), (4096, 9), (u32::MAX, 10), (4095, 11)] {
            ids.insert_first(id, number);
        }
        let found = [0, 1, 4095, 4096, 4097, 900_000, u32::MAX].map(|id| ids.get(id));
        assert_eq!(found, [Some(7), None, Some(8), Some(9), None, None, Some(10)]);
    }

    #[test]
    fn what_is_taken_out_is_gone_and_nothing_else() {
        let mut ids = IdSet::default();
        [1, 2, 70_000, 200_000].into_iter().for_each(|id| ids.insert(id));
        let taken = [2, 3, 70_000, 900_000, 70_000].map(|id| ids.remove(id));
        assert_eq!(taken, [true, false, true, false, false]);
        assert_eq!(ids.len(), 2);
        assert!(ids.contains(1) && ids.contains(200_000));
        ids.insert(3);
        assert!(ids.contains(3) && !ids.contains(2));
    }
}
