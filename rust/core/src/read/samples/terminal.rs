//! A terminal with several commands in it, or a capture that a script made of many: each command's output is
//! read as what it is.
//!
//! A command is a line with a prompt (`$ nvidia-smi dmon -c 5`), perhaps inside a box of `#`. What no reader
//! knows (help, topology) is passed over: it was not meant as samples.

use std::io::Cursor;

use super::{Lines, Reader, SampleClock, Samples, HEAD_LINES, MAX_DOCUMENT_BYTES, READERS};
use crate::base::error::{Error, Result};

pub(super) const READER: Reader = Reader { name: "terminal", clock: SampleClock::LocalOrNone, sniff, read };

/// A prompt and one of the programs whose output is read.
fn is_command(line: &str) -> bool {
    let after = line.match_indices(['$', '#']).filter_map(|(at, mark)| line.get(at + mark.len()..));
    let program = |text: &str| {
        let text = text.strip_prefix(' ')?.trim_start();
        let word = text.strip_prefix("sudo ").unwrap_or(text).split_whitespace().next()?;
        let name = word.rsplit('/').next()?;
        matches!(name, "nvidia-smi" | "dcgmi" | "curl").then_some(())
    };
    after.filter_map(program).next().is_some()
}

/// A prompt with any command; a lone `#` is the comment of many formats.
fn is_prompt(line: &str) -> bool {
    line.split_once("$ ").is_some_and(|(before, command)| {
        !command.trim().is_empty() && !before.trim_start_matches('#').trim().contains(char::is_whitespace)
    })
}

fn sniff(head: &[String]) -> bool {
    // A format that begins with its own line is no terminal, whatever its comments mention.
    head.iter().any(|line| is_command(line)) && !others().any(|reader| (reader.sniff)(head))
}

fn others() -> impl Iterator<Item = &'static Reader> {
    READERS.iter().filter(|reader| reader.name != READER.name)
}

/// The edge of a box around a title.
fn is_edge(line: &str) -> bool {
    line.len() >= 8 && line.bytes().all(|b| b == b'#')
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut output = String::new();
    let (mut begin, mut in_box) = (0, false);
    while let Some(line) = lines.next_indented()? {
        let text = line.trim_start();
        if is_edge(text) {
            in_box = !in_box;
        }
        // A box or another command ends an output, also one whose own is not read.
        if is_command(text) || is_prompt(text) || is_edge(text) {
            read_output(&output, begin, lines, samples)?;
            output.clear();
            begin = lines.number;
        } else if !in_box {
            output.push_str(&line);
            output.push('\n');
            if output.len() as u64 > MAX_DOCUMENT_BYTES {
                return Err(
                    lines.refuse("an output of more than 256 MiB; give it as a file of its own".to_owned())
                );
            }
        }
    }
    read_output(&output, begin, lines, samples)
}

fn read_output(output: &str, begin: u64, lines: &Lines<'_>, samples: &mut Samples) -> Result<()> {
    let head: Vec<String> = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(HEAD_LINES)
        .map(str::to_owned)
        .collect();
    let Some(reader) = others().find(|reader| (reader.sniff)(&head)) else { return Ok(()) };
    let input = Box::new(Cursor::new(output.to_owned().into_bytes()));
    let mut part = Lines::new(input, lines.path, lines.watch, lines.size);
    part.done = lines.done;
    part.number = begin;
    match (reader.read)(&mut part, samples) {
        // One torn output does not cost the others.
        Err(Error::Samples { .. }) => samples.skip(begin),
        outcome => outcome?,
    }
    samples.skipped += part.too_long;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use super::is_command;
    use crate::table::quality::ROWS_SKIPPED;

    #[test]
    fn outputs_are_read_one_by_one() {
        let text = "me@node:~$ nvidia-smi -L
GPU 0: NVIDIA H100 (UUID: GPU-1)
me@node:~$ sudo nvidia-smi dmon -c 1
# gpu    pwr     sm
# Idx      W      %
    0    438     37
    0    438
########################################
# load :: query-gpu
# $ /usr/bin/nvidia-smi --query-gpu=index,power.draw --format=csv
########################################
index, power.draw [W]
0, 440.00 W

[root@node ~]# dcgmi dmon -e 1002 -c 1
#Entity   SMACT
ID
GPU 0     0.504
me@node:~$ nm -D libnvidia-ml.so
0000 T nvmlInit
$ nvidia-smi -q
==============NVSMI LOG==============
Attached GPUs : 1
GPU 0000:01:00.0
    Utilization
        Gpu : 38 %
";
        let (table, quality) = read_text(text.as_bytes());
        assert_eq!(
            shown(&table.unwrap()),
            [
                "0|||||power_w|438",
                "0|||||gpu_utilization_pct|37",
                "0|||||power_w|440",
                "0|||||sm_active_ratio|0.504",
                "0|||||gpu_utilization_pct|38",
            ]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 1);
        // In the numbers of the whole file.
        assert!(format!("{:?}", quality.table().unwrap()).contains("first in line 7"));
    }

    #[test]
    fn one_torn_output_does_not_cost_the_others() {
        let text = "$ nvidia-smi -q -x
<?xml version=\"1.0\" ?>
<nvidia_smi_log>
  <gpu>
$ nvidia-smi dmon -c 1
# gpu    pwr
# Idx      W
    0    438
$ curl localhost:9090/api/v1/query_range
{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",
";
        let (table, quality) = read_text(text.as_bytes());
        assert_eq!(shown(&table.unwrap()), ["0|||||power_w|438"]);
        // The answer in XML was begun and not ended: once as torn, once as no answer at all.
        assert_eq!(quality.count(ROWS_SKIPPED), 3);
    }

    #[test]
    fn what_a_prompt_is() {
        for yes in ["$ nvidia-smi", "root@a:/# nvidia-smi -q", "# $ nvidia-smi pmon", "a$ sudo dcgmi dmon"] {
            assert!(is_command(yes), "{yes}");
        }
        for no in
            ["nvidia-smi", "# gpu sm", "$nvidia-smi", "$ python nvidia-smi.py", "", "$", "# ", "price: 5$ x"]
        {
            assert!(!is_command(no), "{no}");
        }
    }
}
