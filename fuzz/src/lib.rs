//! What the targets share: bytes as a file, mutations that know where a SQLite file keeps its structure, and which
//! errors are answers.

use std::path::PathBuf;

use pyanalyze_core::Error;

/// The bytes as a file, always at the same place: in TMPDIR, which fuzz/run.py puts into memory.
pub fn as_file(bytes: &[u8], extension: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pyanalyze-fuzz-{}.{extension}", std::process::id()));
    std::fs::write(&path, bytes).expect("the input can be written as a file");
    path
}

/// Panics on an error that a damaged file must not lead to: tables that are not what they are declared to be are a
/// mistake of ours, whatever stood in the file.
pub fn answer<T>(outcome: Result<T, impl Into<Error>>) -> Option<T> {
    match outcome.map_err(Into::into) {
        Ok(value) => Some(value),
        Err(
            Error::Damaged { .. }
            | Error::NotSqlite { .. }
            | Error::NotAnExport { .. }
            | Error::Unfinished { .. }
            | Error::Samples { .. }
            | Error::Io { .. },
        ) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Small numbers that only depend on `seed`.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % n.max(1)
    }
}

/// Breaks a SQLite file of `size` bytes in `data` where its structure stands; returns its new size.
///
/// Random bytes mostly hit values; the header, the cell pointers, the first bytes of a row and page numbers are where a
/// page reader can be led astray.
pub fn mutate_pages(data: &mut [u8], size: usize, seed: u32) -> usize {
    let mut numbers = Numbers(u64::from(seed) << 1 | 1);
    let page = match data.get(16..18) {
        Some([0, 1]) => 65_536,
        Some([high, low]) => usize::from(u16::from_be_bytes([*high, *low])).max(512),
        _ => return size,
    };
    if size < 1024 {
        return size;
    }
    let pages = size.div_ceil(page);
    let odd = [0_u8, 1, 2, 5, 10, 13, 0x7f, 0x80, 0x81, 0xfe, 0xff];
    for _ in 0..=numbers.below(4) {
        let start = numbers.below(pages) * page;
        // Page 1 begins with the header of the file.
        let begin = if start == 0 { 100 } else { start };
        let byte = odd[numbers.below(odd.len())];
        let at = match numbers.below(8) {
            0 => numbers.below(100),
            1 => begin + numbers.below(12),
            2 => begin + 8 + numbers.below(64),
            3 | 4 => {
                let pointer = begin + 8 + 2 * numbers.below(16);
                let cell = data.get(pointer..pointer + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
                start + cell + numbers.below(24)
            }
            5 => {
                let from = numbers.below(pages) * page;
                if from + page <= size && start + page <= size {
                    data.copy_within(from..from + page, start);
                }
                continue;
            }
            6 => {
                let at = begin + 8 + numbers.below(page - 112);
                if at + 4 <= size {
                    let number = u32::try_from(numbers.below(pages + 2)).unwrap_or(0);
                    data[at..at + 4].copy_from_slice(&number.to_be_bytes());
                }
                continue;
            }
            _ => start + numbers.below(page),
        };
        if at < size {
            data[at] = byte;
        }
    }
    if numbers.below(40) == 0 {
        return 512 + numbers.below(size - 512);
    }
    size
}
