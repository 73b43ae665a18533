//! Check that a text has the shape that its column promises.
//!
//! Only names of kernels, ranges, processes and devices are free text. All other text has a shape: a version, a UUID,
//! an address, a counter, a function. Text of another shape is dropped, so that text in a wrong place goes no further.

/// The version at the start of `text`: numbers and dots first, then a build such as `-245134619542v0`.
pub(super) fn version(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | '~');
    (word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= 60 && word.chars().all(fits))
        .then(|| word.to_owned())
}

/// The version of the driver. Older releases of nsys write it without its dots, `5358605` for 535.86.05: three digits
/// of the branch, two or three of the release and, if any are left, two of its update.
pub(super) fn driver_version(text: &str) -> Option<String> {
    let word = version(text)?;
    let at = |from: usize, to: usize| word.get(from..to).unwrap_or_default();
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    Some(match word.len() {
        5 | 6 if digits => format!("{}.{}", at(0, 3), at(3, word.len())),
        7 | 8 if digits => {
            let update = word.len() - 2;
            format!("{}.{}.{}", at(0, 3), at(3, update), at(update, word.len()))
        }
        _ => word,
    })
}

/// The file name of a program, without its folder; none of a command with arguments, such as a whole shell script.
pub(super) fn program(command: &str) -> Option<String> {
    let name = command.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    (1..=64).contains(&name.len()).then(|| name.to_owned()).filter(|name| name.chars().all(plain))
}

/// The name of what wrote the export, if it is one that writes exports.
pub(super) fn product(text: &str) -> Option<String> {
    const KNOWN: &[&str] = &["NVIDIA Nsight Systems", "Nsight Systems", "pyanalyze fixture", "pyanalyze"];
    KNOWN.iter().find(|known| text.starts_with(**known)).map(|known| (*known).to_owned())
}

/// A UUID, with or without `GPU-` or `MIG-` (of a MIG device also with its two instance numbers behind slashes).
pub(super) fn is_uuid(text: &str) -> bool {
    let bare = text.trim_start_matches("MIG-").trim_start_matches("GPU-");
    bare.len() <= 60 && bare.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '-' | '/'))
}

/// A PCI address.
pub(super) fn is_bus_location(text: &str) -> bool {
    text.len() <= 20 && text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'))
}

/// The name of a chip, such as `GA100`.
pub(super) fn is_chip(text: &str) -> bool {
    text.len() <= 16 && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The name of a function of the CUDA API.
pub(super) fn is_function(text: &str) -> bool {
    text.len() <= 120 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The words by which nsys calls a counter or a kind of copy: `DRAM Read Bandwidth [Throughput %]`.
pub(super) fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || " _-/%[]()&,:+".contains(c);
    text.len() <= 120 && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nsys_writes_has_its_shape_and_a_sentence_has_none() {
        assert_eq!(version("2024.5.1.113-245134619542v0").as_deref(), Some("2024.5.1.113-245134619542v0"));
        assert_eq!(version("550.90.07 my password").as_deref(), Some("550.90.07"));
        assert_eq!(version("hunter2"), None);
        assert_eq!(version(""), None);
        // Releases of the driver, as nsys of 2022 and of today wrote them, and as they are called.
        for (written, called) in [
            ("41867", "418.67"),
            ("4505105", "450.51.05"),
            ("52510517", "525.105.17"),
            ("5358605", "535.86.05"),
            ("550120", "550.120"),
            ("550.120", "550.120"),
            ("560.35.03", "560.35.03"),
            ("4711", "4711"),
        ] {
            assert_eq!(driver_version(written).as_deref(), Some(called));
        }
        assert_eq!(driver_version("hunter2"), None);
        assert_eq!(product("NVIDIA Nsight Systems 2024 of Ada").as_deref(), Some("NVIDIA Nsight Systems"));
        assert_eq!(product("Ada's own"), None);
        assert!(is_uuid("MIG-GPU-07999adc-5805-6db9-75df-d464bd44bf29/1/0") && !is_uuid("GPU-hunter2"));
        assert!(is_bus_location("0000:0A:00.0") && !is_bus_location("rack 7"));
        assert!(is_chip("GA100") && !is_chip("Ada's chip"));
        assert!(is_function("cudaLaunchKernel_v7000") && !is_function("--token=1"));
        assert!(is_label("Unallocated Warps in Active SMs [Avg]") && !is_label("me@example.com"));
    }
}
