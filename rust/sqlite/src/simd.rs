//! SIMD decode of the whole numbers of a block, four columns at a time.
//!
//! Once the shape of a row is known, a number is a load, a byte swap and a shift; the cost is the number of
//! instructions, not the memory. Columns of whole numbers are mostly close to each other in a row. So two of them are
//! loaded at once, two such pairs become one vector, and a shuffle that belongs to the shape puts all four in place,
//! with the bytes in machine order. Four rows of four columns are then transposed into four columns of four rows.
//!
//! Processors without AVX2, and rows with more than 16 bytes from the first byte of a pair to its last, are decoded
//! number by number, with the same result (see the test below).
//!
//! Here is the only `unsafe` of the crate: four loads and stores of whole arrays, and the call of a function that needs
//! AVX2 after the processor was asked for it.

use crate::record::{Block, Cell, Shapes, Window, WINDOW};

/// Columns that are found together.
pub(crate) const LANES: usize = 4;
/// Rows of a block that are taken at once: what is read of them and made of them stays in the nearest cache.
pub(crate) const ROWS: usize = 256;
/// Bytes that are loaded for two columns.
const PAIR_BYTES: u32 = 16;
/// For a shuffle: no byte, but zero.
const ZERO: u8 = 0x80;

/// Room for the numbers of some rows of four columns.
pub(crate) type Found = [[i64; ROWS]; LANES];

/// Where the numbers of four columns stand in the rows of one shape.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
struct Way {
    /// For every byte of the four numbers, the lowest first, its place in what is loaded for its pair, or [`ZERO`].
    order: [u8; 32],
    /// The bit of a number that says whether it is negative; it is turned over, and then `add` makes the number of it:
    /// with nothing to turn, it is the number of a column that has no bytes.
    sign: [i64; LANES],
    add: [i64; LANES],
    /// Where each pair begins, from the start of the row on.
    at: [u32; LANES / 2],
    /// Whether both pairs are near enough together.
    fits: bool,
}

impl Way {
    const NONE: Self =
        Self { order: [ZERO; 32], sign: [0; LANES], add: [0; LANES], at: [0; LANES / 2], fits: true };

    /// That of columns with these cells; what is no whole number becomes 0.
    fn of(cells: &[Option<Cell>; LANES]) -> Self {
        let mut way = Self::NONE;
        let stored = |lane: usize| cells.get(lane).copied().flatten().as_ref().and_then(Cell::stored);
        for (pair, at) in way.at.iter_mut().enumerate() {
            let begin = [2 * pair, 2 * pair + 1].into_iter().filter_map(|lane| Some(stored(lane)?.0)).min();
            *at = begin.unwrap_or(0);
        }
        let orders = way.order.chunks_exact_mut(8);
        for (lane, ((order, sign), add)) in orders.zip(&mut way.sign).zip(&mut way.add).enumerate() {
            let Some((at, len)) = stored(lane) else {
                *add = cells.get(lane).copied().flatten().and_then(|cell| cell.fixed()).unwrap_or(0);
                continue;
            };
            let from = at - way.at.get(lane / 2).copied().unwrap_or(0);
            way.fits &= from.saturating_add(len) <= PAIR_BYTES;
            // The file has the highest byte first.
            for (byte, place) in order.iter_mut().zip((0..len).rev()) {
                *byte = u8::try_from(from.saturating_add(place)).unwrap_or(ZERO);
            }
            *sign = 1_i64 << (8 * len - 1);
            *add = sign.wrapping_neg();
        }
        way
    }
}

/// ColumnGroup columns.
#[derive(Debug)]
struct ColumnGroup {
    /// Their numbers among the asked ones.
    columns: [Option<usize>; LANES],
    /// By shape.
    ways: Vec<Way>,
}

/// All columns of whole numbers that came up so far, four by four.
#[derive(Debug)]
pub(crate) struct SimdColumns {
    groups: Vec<ColumnGroup>,
    /// Shapes of all rows so far whose ways are known, and how often those were forgotten.
    known: usize,
    forgotten: u64,
    vectors: bool,
}

impl SimdColumns {
    pub(crate) fn new() -> Self {
        Self { groups: Vec::new(), known: 0, forgotten: 0, vectors: has_vectors() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The columns of the `four`-th, by their numbers among the asked ones.
    pub(crate) fn columns(&self, four: usize) -> [Option<usize>; LANES] {
        self.groups.get(four).map_or([None; LANES], |four| four.columns)
    }

    /// Gets ready for blocks with whole numbers in `columns`, and with the rows of `shapes`.
    pub(crate) fn prepare(&mut self, columns: &[usize], shapes: &Shapes) {
        let has = |column| self.groups.iter().any(|four| four.columns.contains(&Some(column)));
        if !columns.iter().all(|column| has(*column)) {
            let mut all: Vec<usize> = self.groups.iter().flat_map(|four| four.columns).flatten().collect();
            all.extend(columns);
            // As they follow each other in a row: neighbours are near.
            all.sort_unstable_by_key(|column| (shapes.place_of(*column), *column));
            all.dedup();
            let four = |columns: &[usize]| ColumnGroup {
                columns: std::array::from_fn(|lane| columns.get(lane).copied()),
                ways: Vec::new(),
            };
            self.groups = all.chunks(LANES).map(four).collect();
            self.known = 0;
        }
        if self.forgotten != shapes.forgotten() {
            self.groups.iter_mut().for_each(|four| four.ways.clear());
            (self.known, self.forgotten) = (0, shapes.forgotten());
        }
        for four in &mut self.groups {
            for shape in self.known..shapes.len() {
                let cell = |column: Option<usize>| shapes.cells(column?).get(shape).copied();
                four.ways.push(Way::of(&four.columns.map(cell)));
            }
        }
        self.known = shapes.len();
    }

    /// Whether the `four`-th can be found at once in a block: all its pairs stand near enough together.
    pub(crate) fn near(&self, four: usize, block: &Block) -> bool {
        let ways = self.groups.get(four).map_or(&[][..], |four| &four.ways);
        self.vectors
            && block.shapes.iter().all(|shape| ways.get(usize::from(*shape)).is_some_and(|way| way.fits))
    }

    /// Puts the numbers of rows of a block, from its `from`-th on, of the `four`-th four columns into `places`, which are
    /// of one length; 0 for what is none. `near` is what [`SimdColumns::near`] says, and all rows stand in their pages.
    pub(crate) fn find(
        &self,
        (four, near): (usize, bool),
        window: &Window,
        block: &Block,
        from: usize,
        shapes: &Shapes,
        mut places: [&mut [i64]; LANES],
    ) {
        let Some(ColumnGroup { columns, ways }) = self.groups.get(four) else { return };
        let (Some(starts), Some(of)) = (block.starts.get(from..), block.shape_of.get(from..)) else { return };
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if near && self.vectors {
            // SAFETY: the processor has AVX2, and that is all the function asks for.
            #[allow(unsafe_code)]
            unsafe {
                done = x86::find(window, starts, of, ways, &mut places);
            }
        }
        for (column, place) in columns.iter().zip(places) {
            let cells = column.map_or(&[][..], |column| shapes.cells(column));
            for ((slot, start), shape) in place.iter_mut().zip(starts).zip(of).skip(done) {
                *slot = cells.get(usize::from(*shape)).map_or(0, |cell| cell.int_in(window, *start));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_vectors() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_vectors() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_permute2x128_si256, _mm256_set_m128i,
        _mm256_shuffle_epi8, _mm256_storeu_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
        _mm256_xor_si256, _mm_loadu_si128,
    };

    use super::{Way, Window, LANES, WINDOW};

    /// Any 16 bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_16(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: a reference to 16 bytes, which may stand anywhere.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// Any 32 bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_32(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: a reference to 32 bytes, which may stand anywhere.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// Any four numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_4(numbers: &[i64; 4]) -> __m256i {
        // SAFETY: a reference to 32 bytes, which may stand anywhere.
        unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) }
    }

    /// ColumnGroup numbers to any place.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_4(numbers: &mut [i64; 4], vector: __m256i) {
        // SAFETY: a unique reference to 32 bytes, which may stand anywhere; every pattern of bits is a number.
        unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().cast(), vector) }
    }

    /// The two columns of a pair.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pair(window: &Window, start: u32, at: u32) -> __m128i {
        let from = start.wrapping_add(at) as usize & (WINDOW - 1);
        // Behind any place of the window that many bytes can be looked at.
        window.get(from..from + 16).and_then(<[u8]>::first_chunk).map_or(load_16(&[0; 16]), |b| load_16(b))
    }

    /// The four numbers of a row.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn row(window: &Window, start: u32, shape: u16, ways: &[Way]) -> __m256i {
        let way = ways.get(usize::from(shape)).unwrap_or(&Way::NONE);
        let [low, high] = way.at;
        let both = _mm256_set_m128i(pair(window, start, high), pair(window, start, low));
        let bytes = _mm256_shuffle_epi8(both, load_32(&way.order));
        _mm256_add_epi64(_mm256_xor_si256(bytes, load_4(&way.sign)), load_4(&way.add))
    }

    /// ColumnGroup rows of four columns as four columns of four rows.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn turned([a, b, c, d]: [__m256i; LANES]) -> [__m256i; LANES] {
        let (ab_even, ab_odd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        let (cd_even, cd_odd) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
        [
            _mm256_permute2x128_si256::<0x20>(ab_even, cd_even),
            _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd),
            _mm256_permute2x128_si256::<0x31>(ab_even, cd_even),
            _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd),
        ]
    }

    /// The numbers of the rows that begin at `starts` and have these shapes, four by four; returns how many rows that
    /// were. Up to three are left.
    #[target_feature(enable = "avx2")]
    pub(crate) fn find(
        window: &Window,
        starts: &[u32],
        shapes: &[u16],
        ways: &[Way],
        places: &mut [&mut [i64]; LANES],
    ) -> usize {
        let rows = starts.as_chunks::<4>().0.iter().zip(shapes.as_chunks::<4>().0);
        let [first, second, third, fourth] =
            places.each_mut().map(|place| place.as_chunks_mut::<4>().0.iter_mut());
        let mut done = 0;
        let places = first.zip(second).zip(third).zip(fourth);
        for (([a, b, c, d], [of_a, of_b, of_c, of_d]), (((first, second), third), fourth)) in rows.zip(places)
        {
            let columns = turned([
                row(window, *a, *of_a, ways),
                row(window, *b, *of_b, ways),
                row(window, *c, *of_c, ways),
                row(window, *d, *of_d, ways),
            ]);
            store_4(first, columns[0]);
            store_4(second, columns[1]);
            store_4(third, columns[2]);
            store_4(fourth, columns[3]);
            done += 4;
        }
        done
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::super::record::{CellHead, Stored, SLACK};
    use super::*;

    /// A fixed sequence: any failure can be seen again.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }

        fn bytes(&mut self, n: usize) -> Vec<u8> {
            (0..n).map(|_| self.below(256) as u8).collect()
        }
    }

    /// A value as it stands in a row: the code of its kind, its bytes, and what number it is.
    fn value(numbers: &mut Numbers, longest_text: usize) -> (u8, Vec<u8>, Option<i64>) {
        let kind = numbers.below(10) as u8;
        let width = match kind {
            0 | 8 | 9 => 0,
            5 => 6,
            6 => 8,
            7 => {
                let text = numbers.below(longest_text);
                return (13 + 2 * text as u8, numbers.bytes(text), None);
            }
            kind => usize::from(kind),
        };
        let bytes = numbers.bytes(width);
        // As the file format says: big-endian, two's complement.
        let negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
        let stored =
            bytes.iter().fold(if negative { -1 } else { 0 }, |number, byte| number << 8 | i64::from(*byte));
        match kind {
            0 => (kind, bytes, Some(0)),
            8 | 9 => (kind, bytes, Some(i64::from(kind) - 8)),
            _ => (kind, bytes, Some(stored)),
        }
    }

    /// Rows of seven columns with whole numbers, nulls and texts in random places of a window; five of the columns are
    /// asked for, in another order. Returns how many groups were near enough together.
    fn agree(numbers: &mut Numbers, rows: usize, kinds: usize, longest_text: usize) -> usize {
        const ASKED: [usize; 5] = [5, 0, 2, 1, 6];
        let asked = ASKED.map(|place| Stored { place: Some(place), real: false });
        let mut shapes = Shapes::new(&asked);
        let mut window = numbers.bytes(WINDOW + SLACK);
        let mut block = Block::new(&asked);
        let codes: Vec<Vec<u8>> =
            (0..kinds).map(|_| (0..7).map(|_| value(numbers, longest_text).0).collect()).collect();
        let mut truth: Vec<Vec<Option<i64>>> = Vec::new();
        // No two rows overlap, and the last one ends where the window does.
        let slot = WINDOW / rows;
        for row in 0..rows {
            let codes = &codes[numbers.below(kinds)];
            let values: Vec<_> = codes
                .iter()
                .map(|code| {
                    std::iter::repeat_with(|| value(numbers, longest_text)).find(|v| v.0 == *code).unwrap()
                })
                .collect();
            let mut record = vec![8];
            record.extend(codes);
            values.iter().for_each(|(_, bytes, _)| record.extend(bytes));
            let end = (row + 1) * slot;
            let start = end - record.len();
            window[start..end].copy_from_slice(&record);
            let head = CellHead::default();
            let shape = shapes.shape(&window, head, (start, record.len()), record.len() as u64).unwrap();
            block.starts.push(start as u32);
            block.shape_of.push(shape);
            truth.push(ASKED.map(|column| values[column].2).to_vec());
        }
        shapes.take_marked(&mut block.shapes);
        let mut near = 0;
        for vectors in [has_vectors(), false] {
            let mut groups = SimdColumns { vectors, ..SimdColumns::new() };
            // Not all of them come up at once.
            groups.prepare(&[1], &shapes);
            groups.prepare(&[4, 0, 3], &shapes);
            groups.prepare(&[2], &shapes);
            assert_eq!(groups.len(), 2);
            let mut seen = Vec::new();
            for four in 0..groups.len() {
                near += usize::from(groups.near(four, &block));
                let mut found = [(); LANES].map(|()| vec![i64::MIN; rows]);
                let places = found.each_mut().map(Vec::as_mut_slice);
                let window = window.first_chunk().unwrap();
                groups.find((four, groups.near(four, &block)), window, &block, 0, &shapes, places);
                for (column, found) in groups.columns(four).iter().zip(found) {
                    let Some(column) = column else { continue };
                    seen.push(*column);
                    for (row, number) in found.iter().enumerate() {
                        // Of text nobody looks at the number.
                        if let Some(expected) = truth[row][*column] {
                            assert_eq!(*number, expected, "vectors {vectors}, column {column}, row {row}");
                        }
                    }
                }
            }
            // By their places in a row: 0, 1, 2, 5 and 6.
            assert_eq!(seen, [1, 3, 2, 0, 4]);
        }
        near
    }

    #[test]
    fn both_ways_find_what_was_stored() {
        let mut numbers = Numbers(20_261_123);
        let mut near = 0;
        for rows in [1, 2, 3, 4, 5, 7, 64, 255, 256] {
            for (kinds, longest_text) in [(1, 1), (3, 1), (40, 2), (40, 50)] {
                near += agree(&mut numbers, rows, kinds, longest_text);
            }
        }
        // Where there are vectors, some groups stand near enough together for them, and some do not.
        assert!(!has_vectors() || (1..72).contains(&near), "{near}");
    }
}
