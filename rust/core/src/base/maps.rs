//! Hash maps keyed by a few integers, and interned text.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A hash for keys of a few whole numbers, many times as fast as the standard one; not for hostile text.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberHasher(u64);

impl NumberHasher {
    fn add(&mut self, word: u64) {
        // Fibonacci hashing; the rotation lets the order of the words count.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }
    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }
    fn write_u16(&mut self, n: u16) {
        self.add(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }
    fn write_i64(&mut self, n: i64) {
        self.add(n.cast_unsigned());
    }
    fn write_isize(&mut self, n: isize) {
        self.add(n.cast_unsigned() as u64);
    }
    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }
}

/// A map by a few whole numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Keys met last, each with a place in a list of the caller's. A key stands in the one slot that its hash names, so a
/// row costs one comparison; a key that another took the slot of gets a second place, and the caller adds up by key.
#[derive(Debug)]
pub(crate) struct Recent<K>(Vec<Option<(K, usize)>>);

/// Slots; a power of two.
const SLOTS: usize = 4096;

impl<K: Copy> Default for Recent<K> {
    fn default() -> Self {
        Self(vec![None; SLOTS])
    }
}

impl<K: Copy + Hash + PartialEq> Recent<K> {
    /// The place of a key: that of the last time, else a new one.
    pub(crate) fn place(&mut self, key: K, new: impl FnOnce() -> usize) -> usize {
        let mut hasher = NumberHasher::default();
        key.hash(&mut hasher);
        let slot = self.0.get_mut(hasher.finish() as usize % SLOTS);
        match slot {
            Some(Some((same, place))) if *same == key => *place,
            Some(slot) => {
                let place = new();
                *slot = Some((key, place));
                place
            }
            None => new(),
        }
    }
}

/// Something of every key. What has one key mostly comes together: it is looked up once.
#[derive(Debug)]
pub(crate) struct ByKey<K, T> {
    all: Vec<(K, T)>,
    places: BTreeMap<K, usize>,
    last: Option<(K, usize)>,
}

impl<K, T> Default for ByKey<K, T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: BTreeMap::new(), last: None }
    }
}

impl<K: Copy + Ord, T: Default> ByKey<K, T> {
    /// That of a key; made if it is not there yet.
    #[inline]
    pub(crate) fn entry(&mut self, key: K) -> Option<&mut T> {
        let place = match self.last {
            Some((same, place)) if same == key => place,
            _ => self.place(key),
        };
        self.all.get_mut(place).map(|(_, of)| of)
    }

    /// The place of a key that is not the last one.
    #[cold]
    fn place(&mut self, key: K) -> usize {
        let all = &mut self.all;
        let place = *self.places.entry(key).or_insert_with(|| {
            all.push((key, T::default()));
            all.len().saturating_sub(1)
        });
        self.last = Some((key, place));
        place
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let place = match self.last {
            Some((same, place)) if same == key => place,
            _ => {
                let place = *self.places.get(&key)?;
                self.last = Some((key, place));
                place
            }
        };
        self.all.get_mut(place).map(|(_, of)| of)
    }

    pub(crate) fn get(&self, key: K) -> Option<&T> {
        let place = match self.last {
            Some((same, place)) if same == key => place,
            _ => *self.places.get(&key)?,
        };
        self.all.get(place).map(|(_, of)| of)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.all.iter().map(|(_, of)| of)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().map(|(_, of)| of)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.all.into_iter().map(|(_, of)| of)
    }

    pub(crate) fn into_sorted(self) -> BTreeMap<K, T> {
        self.all.into_iter().collect()
    }

    /// Keys with theirs, in the order of the keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (K, &T)> {
        self.places.values().filter_map(|place| self.all.get(*place).map(|(key, of)| (*key, of)))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// The entry of a number in a list that grows to it; none for the number of what has none.
pub(crate) fn entry<T: Default>(list: &mut Vec<T>, number: u32) -> Option<&mut T> {
    let place = number as usize;
    if place >= list.len() && number < u32::MAX {
        list.resize_with(place.saturating_add(1), T::default);
    }
    list.get_mut(place)
}

/// Text by number, so that names of different dictionaries can be compared cheaply.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    ids: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Interner {
    pub(crate) fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.ids.insert(text.to_owned(), id);
        self.texts.push(text.to_owned());
        id
    }

    pub(crate) fn text(&self, id: Option<u32>) -> Option<&str> {
        self.texts.get(usize::try_from(id?).ok()?).map(String::as_str)
    }

    /// All texts, by their numbers.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
