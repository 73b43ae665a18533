//! Tell kernels of one short name apart.
//!
//! Many programs launch every kernel through one template, so that nsys gives all of them one short name. Where several
//! full names of a session share a short name, each gets the parts that tell it from the others, best known first:
//!
//! ```text
//!   void at::native::vectorized_elementwise_kernel<(int)4, at::native::AbsFunctor<float>, char *>(int, T2)
//!        Scope                                          Number Scope     Type      Builtin Builtin Signature
//!   -> vectorized_elementwise_kernel<AbsFunctor>
//! ```
//!
//! The parts of each name are put in order of their kind, then of their depth. Names that agree up to a part and differ
//! in it are told apart by it, as in a prefix tree. Where that is too long, a type that no other name has is enough.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray, UInt32Array};
use arrow_buffer::ScalarBuffer;

use crate::base::error::{Error, Result};
use crate::base::maps::{Interner, NumberMap};
use crate::table::builder::replace;
use crate::table::columns::Columns;
use crate::table::schema::KERNELS;

/// Longest name with what tells it apart, in characters; reports show so much of any name.
const MOST_CHARACTERS: usize = 60;
/// What tells a kernel apart may have so many characters after a short name that leaves no room.
const LEAST_ROOM: usize = 24;
/// Parts of a name that are looked at. Names of CUTLASS have hundreds; hostile ones have no end.
const MOST_PARTS: usize = 256;

/// What a part of a full name is; what tells most to a reader first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    /// Type or function in template arguments.
    Type,
    /// Type that every program has.
    Builtin,
    /// Namespace or class.
    Scope,
    /// Of a function or lambda in template arguments.
    Parameter,
    /// Which lambda of a function.
    Lambda,
    Number,
    /// Parameter of the kernel itself.
    Signature,
}

/// Narrow, because ten thousand names have millions of them.
#[derive(Debug)]
struct Part<'a> {
    kind: Kind,
    /// In so many brackets.
    depth: u16,
    text: &'a str,
    /// The part in whose brackets it stands.
    owner: Option<u16>,
}

impl Part<'_> {
    /// It stands in template arguments, and is not only where something of them is declared.
    fn is_argument(&self) -> bool {
        self.kind != Kind::Scope && self.kind != Kind::Signature
    }
}

/// Gives every kernel in `kernels` a `short_name` that no kernel of another full name has; `None` where each has one.
///
/// # Errors
/// [`Error::Schema`] for a table that is not what it is declared to be.
pub(crate) fn tell_apart(kernels: &RecordBatch) -> Result<Option<RecordBatch>> {
    let columns = Columns::new(&KERNELS, kernels);
    let (short, full) = (columns.names("short_name")?, columns.names("name")?);
    let mut pairs = Pairs::default();
    for row in 0..columns.rows() {
        pairs.id(short.key(row), full.key(row));
    }
    let text = |(one, other): &(u32, Option<u32>)| {
        (short.text(*one).unwrap_or_default(), other.and_then(|key| full.text(key)))
    };
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (short, full) in pairs.all.iter().map(text) {
        groups.entry(short).or_default().extend(full);
    }
    let told = told_apart(&groups);
    if told.is_empty() {
        return Ok(None);
    }
    let mut names = Interner::default();
    let new: Vec<u32> = pairs
        .all
        .iter()
        .map(text)
        .map(|(short, full)| {
            names.id(full.and_then(|full| told.get(&(short, full))).map_or(short, |name| name))
        })
        .collect();
    let keys: ScalarBuffer<u32> = (0..columns.rows())
        .map(|row| pairs.id(short.key(row), full.key(row)).and_then(|id| new.get(id).copied()).unwrap_or(0))
        .collect();
    let keys = UInt32Array::new(keys, short.keys().nulls().cloned());
    let texts = Arc::new(StringArray::from(names.into_texts()));
    let column = DictionaryArray::try_new(keys, texts)
        .map_err(|error| Error::schema(&KERNELS.id(), error.to_string()))?;
    replace(&KERNELS, kernels, vec![("short_name", Arc::new(column))]).map(Some)
}

/// Pairs of a short and a full name, by their keys, each with a number.
#[derive(Debug, Default)]
struct Pairs {
    all: Vec<(u32, Option<u32>)>,
    ids: NumberMap<(u32, Option<u32>), usize>,
    /// By full name, the short one that it had last: nearly always its only one.
    last: Vec<Option<(u32, usize)>>,
}

impl Pairs {
    fn id(&mut self, short: Option<u32>, full: Option<u32>) -> Option<usize> {
        let short = short?;
        let place = full.map_or(0, |key| (key as usize).saturating_add(1));
        if let Some(Some((same, id))) = self.last.get(place) {
            if *same == short {
                return Some(*id);
            }
        }
        let id = *self.ids.entry((short, full)).or_insert_with(|| {
            self.all.push((short, full));
            self.all.len().saturating_sub(1)
        });
        if self.last.len() <= place {
            self.last.resize(place.saturating_add(1), None);
        }
        if let Some(slot) = self.last.get_mut(place) {
            *slot = Some((short, id));
        }
        Some(id)
    }
}

/// The names that change, by short and full name.
pub(crate) fn told_apart<'a>(
    groups: &BTreeMap<&'a str, BTreeSet<&'a str>>,
) -> HashMap<(&'a str, &'a str), String> {
    let (told, whole): (Vec<_>, Vec<_>) =
        groups.iter().partition(|(short, names)| names.len() > 1 || (is_generic(short) && !names.is_empty()));
    // How often a name was wanted. Full names are foreign text: what is made of them may be a name that another has.
    let mut wanted: HashMap<String, usize> =
        whole.into_iter().map(|(short, _)| ((*short).to_owned(), 1)).collect();
    let mut found = HashMap::new();
    for (short, names) in told {
        let names: Vec<&str> = names.iter().copied().collect();
        for (full, name) in names.iter().zip(of_group(short, &names)) {
            let mut free = name.clone();
            while wanted.contains_key(&free) {
                let number = wanted.entry(name.clone()).or_default();
                *number = number.saturating_add(1);
                free = format!("{name} #{number}");
            }
            wanted.insert(free.clone(), 1);
            if free != **short {
                found.insert((*short, *full), free);
            }
        }
    }
    found
}

/// Whether libraries give this name to all of their kernels: `cutlass::Kernel<...>`, `cutlass::device_kernel<...>`.
fn is_generic(short: &str) -> bool {
    let bare = short.trim_end_matches(|c: char| c.is_ascii_digit());
    ["kernel", "device_kernel", "devicekernel"].iter().any(|name| bare.eq_ignore_ascii_case(name))
}

/// What each full name of one short name is called, in the same order; two may still be called the same.
fn of_group(short: &str, names: &[&str]) -> Vec<String> {
    let parts = names.iter().map(|name| parts_of(name, short));
    let mut rows: Vec<Row<'_>> = parts.enumerate().map(|(name, parts)| Row::of(name, parts)).collect();
    rows.sort_by(|a, b| a.texts().cmp(b.texts()));
    branch(&mut rows);
    let room = MOST_CHARACTERS.saturating_sub(short.chars().count()).max(LEAST_ROOM);
    let mut having: HashMap<&str, usize> = HashMap::new();
    for row in &rows {
        let types: BTreeSet<&str> = row.types().map(|(_, text)| text).collect();
        types.into_iter().for_each(|text| *having.entry(text).or_default() += 1);
    }
    let mut told = vec![String::new(); names.len()];
    for row in rows {
        let chosen = match row.ordered().find(|(_, part)| part.is_argument()) {
            // All that it has is the beginning of another name, or there is no other.
            Some((first, _)) if row.chosen.is_empty() => BTreeSet::from([first]),
            _ => row.chosen.clone(),
        };
        let only = row
            .types()
            .find(|(_, text)| having.get(text) == Some(&1))
            .map(|(part, _)| BTreeSet::from([part]));
        let mut name = written(short, &row.parts, &chosen, usize::MAX);
        if name.chars().count() > MOST_CHARACTERS {
            name = written(short, &row.parts, &only.unwrap_or(chosen), room);
        }
        if let Some(told) = told.get_mut(row.name) {
            *told = name;
        }
    }
    told
}

/// One full name.
struct Row<'a> {
    name: usize,
    parts: Vec<Part<'a>>,
    /// The parts in the order in which they are compared.
    order: Vec<u16>,
    /// Parts in which it differs from others.
    chosen: BTreeSet<usize>,
}

impl<'a> Row<'a> {
    fn of(name: usize, parts: Vec<Part<'a>>) -> Self {
        let mut order: Vec<u16> = (0..).take(parts.len()).collect();
        order.sort_by_key(|place| parts.get(usize::from(*place)).map(|part| (part.kind, part.depth, *place)));
        Self { name, parts, order, chosen: BTreeSet::new() }
    }

    fn at(&self, at: usize) -> Option<(usize, &Part<'a>)> {
        let place = usize::from(*self.order.get(at)?);
        Some((place, self.parts.get(place)?))
    }

    fn ordered(&self) -> impl Iterator<Item = (usize, &Part<'a>)> {
        (0..self.order.len()).filter_map(|at| self.at(at))
    }

    fn text(&self, at: usize) -> Option<(Kind, &'a str)> {
        self.at(at).map(|(_, part)| (part.kind, part.text))
    }

    fn texts(&self) -> impl Iterator<Item = (Kind, &'a str)> + '_ {
        self.ordered().map(|(_, part)| (part.kind, part.text))
    }

    fn types(&self) -> impl Iterator<Item = (usize, &'a str)> + '_ {
        self.ordered().filter(|(_, part)| part.kind == Kind::Type).map(|(place, part)| (place, part.text))
    }
}

/// Chooses of each row, which are sorted, the parts at which the tree of all rows branches.
fn branch(rows: &mut [Row<'_>]) {
    // Rows that agree in all parts before one.
    let mut agreeing = vec![(rows, 0_usize)];
    while let Some((rows, at)) = agreeing.pop() {
        if rows.len() < 2 || rows.iter().all(|row| row.text(at).is_none()) {
            continue;
        }
        let differ = rows.first().map(|row| row.text(at)) != rows.last().map(|row| row.text(at));
        for same in rows.chunk_by_mut(|a, b| a.text(at) == b.text(at)) {
            if differ {
                for row in same.iter_mut() {
                    let part = row.at(at).map(|(place, _)| place);
                    row.chosen.extend(part);
                }
            }
            agreeing.push((same, at.saturating_add(1)));
        }
    }
}

/// A short name with the chosen parts where C++ has them, at most `room` characters on each side of it.
fn written(short: &str, parts: &[Part<'_>], chosen: &BTreeSet<usize>, room: usize) -> String {
    let of = |wanted: fn(&Part<'_>) -> bool| {
        let texts = chosen.iter().filter_map(|place| parts.get(*place)).filter(|part| wanted(part));
        texts.map(|part| part.text).collect::<Vec<_>>()
    };
    let scope: String =
        of(|part| part.kind == Kind::Scope && part.depth == 0).iter().flat_map(|s| [s, "::"]).collect();
    let mut behind = String::new();
    let inside = inside(None, parts, chosen);
    if !inside.is_empty() {
        behind = format!("<{}>", inside.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", "));
    }
    let signature = of(|part| part.kind == Kind::Signature);
    if !signature.is_empty() {
        behind = format!("{behind}({})", signature.join(", "));
    }
    format!("{}{short}{}", cut(&scope, room), cut(&behind, room))
}

/// What is written of the chosen parts in the brackets of one, without those in brackets of another chosen one.
fn inside(owner: Option<usize>, parts: &[Part<'_>], chosen: &BTreeSet<usize>) -> Vec<(Kind, String)> {
    let chosen_owner = |part: &Part<'_>| {
        let mut owner = part.owner.map(usize::from);
        while let Some(place) = owner.filter(|place| !chosen.contains(place)) {
            owner = parts.get(place).and_then(|part| part.owner).map(usize::from);
        }
        owner
    };
    let of = |place: &usize| parts.get(*place).map(|part| (*place, part));
    chosen
        .iter()
        .filter_map(of)
        .filter(|(_, part)| part.depth > 0 && part.kind != Kind::Signature && chosen_owner(part) == owner)
        .map(|(place, part)| {
            let mut text = if part.kind == Kind::Lambda {
                format!("lambda {}", part.text)
            } else {
                part.text.to_owned()
            };
            let all = inside(Some(place), parts, chosen);
            let list = |wanted: fn(Kind) -> bool| {
                let texts = all.iter().filter(|(kind, _)| wanted(*kind)).map(|(_, text)| text.as_str());
                Some(texts.collect::<Vec<_>>().join(", ")).filter(|texts| !texts.is_empty())
            };
            if let Some(list) = list(|kind| !matches!(kind, Kind::Parameter | Kind::Lambda)) {
                text = format!("{text}<{list}>");
            }
            if let Some(list) = list(|kind| kind == Kind::Parameter) {
                text = format!("{text}({list})");
            }
            if let Some(list) = list(|kind| kind == Kind::Lambda) {
                text = format!("{text}::{list}");
            }
            (part.kind, text)
        })
        .collect()
}

/// At most so many characters of a text: its beginning and its end.
fn cut(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_owned();
    }
    let (end, begin) = (most / 2, most.saturating_sub(most / 2).saturating_sub(1));
    text.chars().take(begin).chain(['…']).chain(text.chars().skip(n.saturating_sub(end))).collect()
}

/// A bracket that is open.
struct Open {
    bracket: char,
    /// Parts before it.
    before: usize,
    /// The part that it follows.
    follows: Option<usize>,
    /// Whose the parts in it are.
    owner: Option<usize>,
}

/// The parts of a full name as NVIDIA's and other demanglers write it; none of text without the short name.
fn parts_of<'a>(full: &'a str, short: &str) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut last: Option<usize> = None;
    let mut is_name = false;
    let mut rest = full;
    while parts.len() < MOST_PARTS && !rest.is_empty() {
        let end = rest.find(|c| "<>()[]{},:'".contains(c)).unwrap_or(rest.len());
        let (word, mut tail) = rest.split_at(end);
        let word = word.trim();
        if is_operator(word) {
            // Its symbols are no brackets.
            tail = tail.trim_start_matches(|c| "<>=+-*/!&|^%~, ".contains(c));
            rest = tail.strip_prefix("()").or(tail.strip_prefix("[]")).unwrap_or(tail);
            continue;
        }
        let within = open.last().map(|open: &Open| open.owner);
        match part(word, &open, tail.starts_with("::"), short) {
            Word::Part(kind, text) => {
                // There are few parts, so that their numbers fit; a depth that does not is as good as the greatest.
                let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
                last = Some(parts.len());
                parts.push(Part {
                    kind,
                    depth: narrow(open.len()),
                    text,
                    owner: within.flatten().map(narrow),
                });
            }
            Word::Kernel => (last, is_name) = (None, true),
            Word::Nothing => {}
        }
        let Some(delimiter) = tail.chars().next() else { break };
        rest = tail.get(delimiter.len_utf8()..).unwrap_or_default();
        match delimiter {
            '<' | '(' | '[' | '{' => {
                let owner = last.or(within.flatten());
                open.push(Open { bracket: delimiter, before: parts.len(), follows: last, owner });
                last = None;
            }
            // An arrow closes nothing.
            '>' if word.ends_with('-') => {}
            '>' | ')' | ']' | '}' => {
                let pair = match delimiter {
                    '>' => '<',
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                // What is not closed inside of other brackets is a comparison.
                let outermost = if delimiter == '>' { open.len().saturating_sub(1) } else { 0 };
                let found = open.iter().skip(outermost).rposition(|open| open.bracket == pair);
                let Some(found) = found.map(|place| place.saturating_add(outermost)) else { continue };
                if let Some(closed) = open.drain(found..).next() {
                    // The type of a number: `(int)4`.
                    if pair == '(' && rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                        parts.truncate(closed.before);
                    }
                    last = closed.follows;
                }
            }
            ',' => last = None,
            _ => {}
        }
    }
    if !is_name {
        parts.clear();
    }
    parts.shrink_to_fit();
    parts
}

fn is_operator(word: &str) -> bool {
    word.strip_prefix("operator")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == ' '))
}

enum Word<'a> {
    Part(Kind, &'a str),
    /// The short name itself.
    Kernel,
    /// It tells nothing.
    Nothing,
}

/// What a word is: the brackets around it, whether `::` follows.
fn part<'a>(word: &'a str, open: &[Open], is_scope: bool, short: &str) -> Word<'a> {
    let words = || word.split([' ', '*', '&']).filter(|word| !word.is_empty());
    const NOTHING: [&str; 9] =
        ["const", "volatile", "noexcept", "lambda", "unnamed", "anonymous", "namespace", "type", "..."];
    if words().all(|word| NOTHING.contains(&word)) {
        return Word::Nothing;
    }
    // A type that the function returns comes before its first scope.
    let bare = word.rsplit(' ').next().unwrap_or(word);
    let Some(outermost) = open.first() else {
        return if !is_scope && bare == short { Word::Kernel } else { Word::Part(Kind::Scope, bare) };
    };
    if outermost.bracket == '(' {
        return Word::Part(Kind::Signature, word);
    }
    // NVIDIA writes `[lambda(int) (instance 2)]`, others `{lambda(int)#2}`.
    if let Some(number) = word.strip_prefix("instance ").or(word.strip_prefix('#')) {
        return Word::Part(Kind::Lambda, number);
    }
    let is_parameter = open.iter().any(|open| open.bracket == '(');
    if is_scope {
        // A parameter has the name of its type, whatever namespace that is of.
        return if is_parameter { Word::Nothing } else { Word::Part(Kind::Scope, bare) };
    }
    let is_number = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
    if is_number || word == "true" || word == "false" {
        return Word::Part(Kind::Number, word);
    }
    const BUILTIN: [&str; 13] = [
        "void", "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "const",
        "volatile", "__half",
    ];
    Word::Part(
        match is_parameter {
            true => Kind::Parameter,
            false if words().all(|word| BUILTIN.contains(&word)) => Kind::Builtin,
            false => Kind::Type,
        },
        word,
    )
}

#[cfg(test)]
mod tests;
