//! How does a session look in the Perfetto UI?
//!
//! Writes a Perfetto protobuf trace (`ui.perfetto.dev`, `trace_processor`) while it walks the tables in time order:
//! every table stays as it is, and what is kept besides is one entry per slice that is open, per track and per distinct
//! name. The protobuf encoder is the forty lines below: a trace needs three wire types.
//!
//! ```text
//!   about this trace                       an instant: clock, shift, what is modelled
//!   GPU 0: NVIDIA A100                     counters of GPU metrics, switches as instants with their gap
//!     service (pid 4711)                   one group per tenant
//!       residency, hardware context 0x..   slices: this context held the compute engine
//!       kernels, context 1, stream 7       slices, as recorded (they include time switched out)
//!       graphs ..., copies ...             slices
//!       units of work                          slices: requests, iterations, steps
//!       critical chain of units                slices, an arrow from each step to the next
//!       modelled: warps (fraction of slots)       counters of the placement MODEL, no hardware counter
//!       modelled: SMs active (fraction)
//! ```
//!
//! - Kernels are slices on tracks (`TrackEvent`), not `GpuRenderStageEvent`: render stages know hardware queues but no
//!   tenants, and tenants are what this trace is about.
//! - Groups are plain tracks that name the pid, not Perfetto processes: two containers may show the same pid, and
//!   Perfetto would merge their tracks.
//! - Slices of a track must nest, kernels of a stream may overlap (programmatic launches, graph nodes, time-slicing):
//!   each overlap gets a uuid, a further track of the same name and merge key that the UI folds into one.
//! - Timestamps are nanoseconds of the session clock on the trace's own clock (`BUILTIN_CLOCK_BOOTTIME`, which it is
//!   not: no clock of the machine is claimed). Perfetto knows no negative time: a session that starts before 0 is
//!   shifted to start at 0, and `time_shift_ns` of the trace attributes and of the first instant says how much was
//!   added; it is 0 otherwise.
//! - An interval whose end lies before its start is drawn with no length.
//! - API calls, NVTX ranges and samples are not in it.

mod units;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::Write;
use std::path::Path;

use arrow_array::Int64Array;

use crate::base::error::{Error, Result};
use crate::base::watch::Watch;
use crate::table::columns::NameColumn;
use crate::table::columns::{at, in_order, text_at, Columns};
use crate::table::events::Tables;
use crate::table::launch::Folded;
use crate::table::schema::{self, Table};
use crate::table::tenant_lookup::Who;
use units::{SegmentRows, UnitRows};

/// A protobuf message in the making.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u64) {
        self.varint((u64::from(field) << 3) | wire_type);
    }

    fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    /// `int32` and `int64`: negative numbers take ten bytes.
    fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value.cast_unsigned());
    }

    fn double(&mut self, field: u32, value: f64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn message(&mut self, field: u32, value: &Self) {
        self.bytes(field, &value.0);
    }
}

/// Field numbers and values of `perfetto/trace/*.proto`.
mod proto {
    pub const TRACE_PACKET: u32 = 1;

    pub const PACKET_TIMESTAMP: u32 = 8;
    pub const PACKET_SEQUENCE_ID: u32 = 10;
    pub const PACKET_TRACK_EVENT: u32 = 11;
    pub const PACKET_INTERNED_DATA: u32 = 12;
    pub const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub const PACKET_DEFAULTS: u32 = 59;
    pub const PACKET_TRACK_DESCRIPTOR: u32 = 60;
    pub const PACKET_FIRST_ON_SEQUENCE: u32 = 87;
    pub const PACKET_TRACE_ATTRIBUTES: u32 = 126;
    pub const DEFAULTS_CLOCK_ID: u32 = 58;
    pub const CLOCK_BOOTTIME: u64 = 6;
    pub const STATE_CLEARED: u64 = 1;
    pub const NEEDS_STATE: u64 = 2;

    pub const ATTRIBUTES_ATTRIBUTE: u32 = 1;
    pub const ATTRIBUTE_KEY: u32 = 1;
    pub const ATTRIBUTE_INT: u32 = 2;
    pub const ATTRIBUTE_TEXT: u32 = 3;

    pub const TRACK_UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PARENT: u32 = 5;
    pub const TRACK_COUNTER: u32 = 8;
    pub const TRACK_CHILD_ORDERING: u32 = 11;
    pub const TRACK_RANK: u32 = 12;
    pub const TRACK_DESCRIPTION: u32 = 14;
    pub const TRACK_MERGE: u32 = 15;
    pub const TRACK_MERGE_KEY: u32 = 17;
    pub const ORDERING_EXPLICIT: u64 = 3;
    pub const MERGE_BY_KEY: u64 = 3;
    pub const COUNTER_UNIT_NAME: u32 = 6;

    pub const EVENT_ANNOTATION: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_NAME_IID: u32 = 10;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_NAME: u32 = 23;
    pub const EVENT_DOUBLE: u32 = 44;
    pub const EVENT_FLOW: u32 = 47;
    pub const EVENT_FLOW_ENDS: u32 = 48;
    pub const TYPE_BEGIN: u64 = 1;
    pub const TYPE_END: u64 = 2;
    pub const TYPE_INSTANT: u64 = 3;
    pub const TYPE_COUNTER: u64 = 4;

    pub const ANNOTATION_NAME_IID: u32 = 1;
    pub const ANNOTATION_BOOL: u32 = 2;
    pub const ANNOTATION_UINT: u32 = 3;
    pub const ANNOTATION_INT: u32 = 4;
    pub const ANNOTATION_TEXT: u32 = 6;
    pub const ANNOTATION_NAME: u32 = 10;
    pub const ANNOTATION_TEXT_IID: u32 = 17;

    pub const INTERNED_EVENT_NAMES: u32 = 2;
    pub const INTERNED_ANNOTATION_NAMES: u32 = 3;
    pub const INTERNED_ANNOTATION_TEXTS: u32 = 29;
    pub const INTERNED_IID: u32 = 1;
    pub const INTERNED_TEXT: u32 = 2;
}

/// Text beyond this many distinct values of a kind is written in place: memory stays bounded.
const MAX_INTERNED: usize = 1 << 16;

/// The only packet sequence of the trace.
const SEQUENCE: u64 = 1;

const NO_TENANT: &str = "no tenant named";

/// Text that is written once and then referred to by number.
#[derive(Debug)]
struct Interned {
    /// Where new text is declared, in `InternedData`.
    declared: u32,
    ids: HashMap<String, u64>,
}

impl Interned {
    fn new(declared: u32) -> Self {
        Self { declared, ids: HashMap::new() }
    }

    /// The number of `text`, declared in `data` at its first use; `None` where no more are kept.
    fn id(&mut self, text: &str, data: &mut Message) -> Option<u64> {
        if let Some(id) = self.ids.get(text) {
            return Some(*id);
        }
        if self.ids.len() >= MAX_INTERNED {
            return None;
        }
        let id = self.ids.len() as u64 + 1;
        self.ids.insert(text.to_owned(), id);
        let mut entry = Message::default();
        entry.uint(proto::INTERNED_IID, id);
        entry.text(proto::INTERNED_TEXT, text);
        data.message(self.declared, &entry);
        Some(id)
    }
}

/// Beside a slice or an instant, in the UI's details.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Int(i64),
    Uint(u64),
    Bool(bool),
    Text(&'a str),
}

type Note<'a> = (&'static str, Value<'a>);

/// Which work of a tenant a track shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Work {
    Kernels,
    Graphs,
    Copies,
}

/// What a track is about. Tracks are declared when something is first seen on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    About,
    Device(Option<u32>),
    Tenant(u32, Option<u32>),
    Work(Work, Process, Option<u32>, Option<u32>),
    Residency(u32, Option<u32>, u64),
    Switches(u32),
    /// Device and row of the metric's first sample: its name stands there.
    Metric(Option<u32>, usize),
    Warps(u32, u32),
    ActiveSms(u32, u32),
    Units(u32, u32),
    /// The critical chains of units.
    Chain(u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Process {
    device: u32,
    tenant: Option<u32>,
    capture: u32,
    pid: Option<u32>,
}

#[derive(Debug)]
struct Track {
    uuid: u64,
    parent: u64,
    name: String,
    rank: i64,
    /// Parallel tracks, the track itself among them, with nothing open, lowest first.
    free: BinaryHeap<Reverse<u64>>,
}

/// What is still to be written for something that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closing {
    /// The slice on this uuid of this track ends.
    Slice { uuid: u64, track: usize },
    /// The model says nothing about what comes after: it ends at nothing on the SMs.
    Counter { track: u64 },
}

/// Writes packets; knows tracks, parallel tracks and interned text.
struct Writer<'a> {
    out: &'a mut dyn Write,
    path: &'a Path,
    origin_ns: i64,
    events: u64,
    next_uuid: u64,
    names: Interned,
    annotations: Interned,
    texts: Interned,
    tracks: Vec<Track>,
    by_key: HashMap<Key, usize>,
    open: BinaryHeap<Reverse<(i64, Closing)>>,
    labels: Labels,
}

impl Writer<'_> {
    fn packet(&mut self, mut packet: Message, flags: u64) -> Result<()> {
        packet.uint(proto::PACKET_SEQUENCE_ID, SEQUENCE);
        packet.uint(proto::PACKET_SEQUENCE_FLAGS, flags);
        let mut framed = Message::default();
        framed.message(proto::TRACE_PACKET, &packet);
        self.out.write_all(&framed.0).map_err(|e| Error::io("write", self.path, e))
    }

    /// Clears the state of the sequence and says what cannot be seen from the events.
    ///
    /// The instant stands at the first time of all: in an export of epoch times one at 0 would stretch the
    /// picture to fifty years.
    fn begin(&mut self, first_ns: i64, attributes: &[Note<'_>]) -> Result<()> {
        let mut defaults = Message::default();
        defaults.uint(proto::DEFAULTS_CLOCK_ID, proto::CLOCK_BOOTTIME);
        let mut list = Message::default();
        for (key, value) in attributes {
            let mut attribute = Message::default();
            attribute.text(proto::ATTRIBUTE_KEY, &format!("pyanalyze.{key}"));
            match value {
                Value::Int(v) => attribute.int(proto::ATTRIBUTE_INT, *v),
                Value::Uint(v) => attribute.uint(proto::ATTRIBUTE_INT, *v),
                Value::Bool(v) => attribute.uint(proto::ATTRIBUTE_INT, u64::from(*v)),
                Value::Text(v) => attribute.text(proto::ATTRIBUTE_TEXT, v),
            }
            list.message(proto::ATTRIBUTES_ATTRIBUTE, &attribute);
        }
        let mut packet = Message::default();
        packet.uint(proto::PACKET_FIRST_ON_SEQUENCE, 1);
        packet.message(proto::PACKET_DEFAULTS, &defaults);
        packet.message(proto::PACKET_TRACE_ATTRIBUTES, &list);
        self.packet(packet, proto::STATE_CLEARED)?;
        self.instant(first_ns, Key::About, "about this trace", attributes)
    }

    /// One event; `time_ns` never goes back from call to call.
    fn event(
        &mut self,
        time_ns: i64,
        kind: u64,
        track: u64,
        name: Option<&str>,
        notes: &[Note<'_>],
        value: Option<f64>,
    ) -> Result<()> {
        self.event_with_flows(time_ns, (kind, track), name, notes, value, [None; 2])
    }

    /// The same at the end of one arrow and the begin of another, by their numbers.
    fn event_with_flows(
        &mut self,
        time_ns: i64,
        (kind, track): (u64, u64),
        name: Option<&str>,
        notes: &[Note<'_>],
        value: Option<f64>,
        [comes, goes]: [Option<u64>; 2],
    ) -> Result<()> {
        let mut declared = Message::default();
        let mut event = Message::default();
        event.uint(proto::EVENT_TYPE, kind);
        event.uint(proto::EVENT_TRACK, track);
        if let Some(name) = name {
            match self.names.id(name, &mut declared) {
                Some(id) => event.uint(proto::EVENT_NAME_IID, id),
                None => event.text(proto::EVENT_NAME, name),
            }
        }
        if let Some(value) = value {
            event.double(proto::EVENT_DOUBLE, value);
        }
        for (field, flow) in [(proto::EVENT_FLOW, goes), (proto::EVENT_FLOW_ENDS, comes)] {
            if let Some(flow) = flow {
                event.fixed(field, flow);
            }
        }
        for (key, value) in notes {
            let mut note = Message::default();
            match self.annotations.id(key, &mut declared) {
                Some(id) => note.uint(proto::ANNOTATION_NAME_IID, id),
                None => note.text(proto::ANNOTATION_NAME, key),
            }
            match value {
                Value::Int(v) => note.int(proto::ANNOTATION_INT, *v),
                Value::Uint(v) => note.uint(proto::ANNOTATION_UINT, *v),
                Value::Bool(v) => note.uint(proto::ANNOTATION_BOOL, u64::from(*v)),
                Value::Text(v) => match self.texts.id(v, &mut declared) {
                    Some(id) => note.uint(proto::ANNOTATION_TEXT_IID, id),
                    None => note.text(proto::ANNOTATION_TEXT, v),
                },
            }
            event.message(proto::EVENT_ANNOTATION, &note);
        }
        let mut packet = Message::default();
        // Never negative: the origin is the earliest time of all, or 0 where that is later.
        packet.uint(proto::PACKET_TIMESTAMP, time_ns.max(self.origin_ns).abs_diff(self.origin_ns));
        if !declared.0.is_empty() {
            packet.message(proto::PACKET_INTERNED_DATA, &declared);
        }
        packet.message(proto::PACKET_TRACK_EVENT, &event);
        self.events += 1;
        self.packet(packet, proto::NEEDS_STATE)
    }

    /// The track of `key`, declared with its parents at first use.
    fn track(&mut self, key: Key) -> Result<usize> {
        if let Some(index) = self.by_key.get(&key) {
            return Ok(*index);
        }
        let parent = match key {
            Key::About | Key::Device(_) => None,
            Key::Tenant(device, _) | Key::Switches(device) => Some(Key::Device(Some(device))),
            Key::Metric(device, _) => Some(Key::Device(device)),
            Key::Work(_, p, ..) => Some(Key::Tenant(p.device, p.tenant)),
            Key::Residency(device, tenant, _) => Some(Key::Tenant(device, tenant)),
            Key::Warps(device, tenant)
            | Key::ActiveSms(device, tenant)
            | Key::Units(device, tenant)
            | Key::Chain(device, tenant) => Some(Key::Tenant(device, Some(tenant))),
        };
        let parent = match parent {
            Some(key) => {
                let index = self.track(key)?;
                self.tracks.get(index).map_or(0, |t| t.uuid)
            }
            None => 0,
        };
        let label = self.labels.of(key);
        let uuid = self.declare(parent, &label, None)?;
        let index = self.tracks.len();
        self.tracks.push(Track {
            uuid,
            parent,
            name: label.name,
            rank: label.rank,
            free: [Reverse(uuid)].into(),
        });
        self.by_key.insert(key, index);
        Ok(index)
    }

    fn declare(&mut self, parent: u64, label: &Label, merged_with: Option<u64>) -> Result<u64> {
        self.next_uuid += 1;
        let uuid = self.next_uuid;
        let mut track = Message::default();
        track.uint(proto::TRACK_UUID, uuid);
        if parent != 0 {
            track.uint(proto::TRACK_PARENT, parent);
        }
        track.text(proto::TRACK_NAME, &label.name);
        if let Some(description) = &label.description {
            track.text(proto::TRACK_DESCRIPTION, description);
        }
        track.uint(proto::TRACK_CHILD_ORDERING, proto::ORDERING_EXPLICIT);
        track.int(proto::TRACK_RANK, label.rank);
        track.uint(proto::TRACK_MERGE, proto::MERGE_BY_KEY);
        track.uint(proto::TRACK_MERGE_KEY, merged_with.unwrap_or(uuid));
        if let Some(unit) = &label.counter {
            let mut counter = Message::default();
            counter.text(proto::COUNTER_UNIT_NAME, unit);
            track.message(proto::TRACK_COUNTER, &counter);
        }
        let mut packet = Message::default();
        packet.message(proto::PACKET_TRACK_DESCRIPTOR, &track);
        self.packet(packet, proto::NEEDS_STATE)?;
        Ok(uuid)
    }

    /// Writes the ends of everything that ended by `time_ns`; after it only what runs beyond is open.
    fn close_until(&mut self, time_ns: i64) -> Result<()> {
        while let Some(Reverse((end_ns, closing))) = self.open.peek().copied() {
            if end_ns > time_ns {
                break;
            }
            self.open.pop();
            match closing {
                Closing::Slice { uuid, track } => {
                    self.event(end_ns, proto::TYPE_END, uuid, None, &[], None)?;
                    if let Some(track) = self.tracks.get_mut(track) {
                        track.free.push(Reverse(uuid));
                    }
                }
                Closing::Counter { track } => {
                    self.event(end_ns, proto::TYPE_COUNTER, track, None, &[], Some(0.0))?;
                }
            }
        }
        Ok(())
    }

    fn slice(&mut self, start_ns: i64, end_ns: i64, key: Key, name: &str, notes: &[Note<'_>]) -> Result<()> {
        self.slice_with_flows((start_ns, end_ns), key, name, notes, [None; 2])
    }

    /// The same at the end of one arrow and the begin of another.
    fn slice_with_flows(
        &mut self,
        (start_ns, end_ns): (i64, i64),
        key: Key,
        name: &str,
        notes: &[Note<'_>],
        flows: [Option<u64>; 2],
    ) -> Result<()> {
        let index = self.track(key)?;
        let free = self.tracks.get_mut(index).and_then(|track| track.free.pop());
        let uuid = match (free, self.tracks.get(index)) {
            (Some(Reverse(uuid)), _) => uuid,
            (None, Some(track)) => {
                let (uuid, parent, rank) = (track.uuid, track.parent, track.rank);
                let label = Label { name: track.name.clone(), rank, description: None, counter: None };
                self.declare(parent, &label, Some(uuid))?
            }
            (None, None) => return Ok(()),
        };
        self.event_with_flows(start_ns, (proto::TYPE_BEGIN, uuid), Some(name), notes, None, flows)?;
        self.open.push(Reverse((end_ns.max(start_ns), Closing::Slice { uuid, track: index })));
        Ok(())
    }

    fn instant(&mut self, time_ns: i64, key: Key, name: &str, notes: &[Note<'_>]) -> Result<()> {
        let index = self.track(key)?;
        let uuid = self.tracks.get(index).map_or(0, |t| t.uuid);
        self.event(time_ns, proto::TYPE_INSTANT, uuid, Some(name), notes, None)
    }

    fn counter(&mut self, time_ns: i64, key: Key, value: f64) -> Result<u64> {
        let index = self.track(key)?;
        let uuid = self.tracks.get(index).map_or(0, |t| t.uuid);
        self.event(time_ns, proto::TYPE_COUNTER, uuid, None, &[], Some(value))?;
        Ok(uuid)
    }
}

/// How a track is called and where it stands among its siblings.
#[derive(Debug)]
struct Label {
    name: String,
    rank: i64,
    description: Option<String>,
    /// Unit, where the track is a counter.
    counter: Option<String>,
}

/// What tracks are named after.
#[derive(Debug, Default)]
struct Labels {
    devices: BTreeMap<u32, String>,
    /// By device and tenant: name, basis.
    tenants: BTreeMap<(u32, u32), (String, String)>,
    /// By the row of the first sample: name, unit.
    metrics: HashMap<usize, (String, String)>,
}

impl Labels {
    fn read(tables: &Tables) -> Result<Self> {
        let mut labels = Self::default();
        if let Some(batch) = tables.get(schema::DEVICES.name) {
            let columns = Columns::new(&schema::DEVICES, batch);
            let (id, name) = (columns.u32("device_id")?, columns.text("name")?);
            let mig = columns.text("mig_profile")?;
            for row in 0..columns.rows() {
                let mut text = format!("GPU {}", id.value(row));
                if let Some(name) = text_at(name, row) {
                    text = format!("{text}: {name}");
                }
                if let Some(mig) = text_at(mig, row).filter(|mig| !text.contains(mig)) {
                    text = format!("{text} (MIG {mig})");
                }
                labels.devices.entry(id.value(row)).or_insert(text);
            }
        }
        if let Some(batch) = tables.get(schema::TENANTS.name) {
            let columns = Columns::new(&schema::TENANTS, batch);
            let (id, device) = (columns.u32("tenant_id")?, columns.u32("device_id")?);
            let (pid, host_pid) = (columns.u32("pid")?, columns.u32("host_pid")?);
            let (name, basis) = (columns.text("name")?, columns.names("basis")?);
            for row in 0..columns.rows() {
                let pids = match (at(pid, row), at(host_pid, row)) {
                    (Some(pid), Some(host)) if pid != host => format!(" (pid {pid}, on the host {host})"),
                    (Some(pid), _) | (None, Some(pid)) => format!(" (pid {pid})"),
                    (None, None) => String::new(),
                };
                let text = format!("{}{pids}", text_at(name, row).unwrap_or("tenant without a name"));
                let basis = basis.get(row).unwrap_or("inferred").to_owned();
                labels.tenants.insert((device.value(row), id.value(row)), (text, basis));
            }
        }
        Ok(labels)
    }

    fn of(&self, key: Key) -> Label {
        let plain = |name: String, rank: i64, description: Option<&str>| Label {
            name,
            rank,
            description: description.map(str::to_owned),
            counter: None,
        };
        let number = |value: Option<u32>| value.map_or("not recorded".to_owned(), |v| v.to_string());
        match key {
            Key::About => plain("about this trace".to_owned(), 0, None),
            Key::Device(None) => plain("GPU not named by the export".to_owned(), i64::from(i32::MAX), None),
            Key::Device(Some(device)) => {
                let name = self.devices.get(&device).cloned().unwrap_or_else(|| format!("GPU {device}"));
                plain(name, i64::from(device & 0xffff).saturating_add(1), None)
            }
            Key::Tenant(_, None) => {
                plain(NO_TENANT.to_owned(), i64::from(i32::MAX) / 2, Some("Recorded, but no tenant could be named."))
            }
            Key::Tenant(device, Some(tenant)) => {
                let (name, basis) = self.tenants.get(&(device, tenant)).cloned().unwrap_or_default();
                let name = if name.is_empty() { format!("tenant {tenant}") } else { name };
                let told = format!("Tenant {tenant} of the tables; who it is: {basis}.");
                plain(name, i64::from(tenant & 0xff_ffff).saturating_add(1), Some(&told))
            }
            Key::Work(work, process, context, stream) => {
                let (what, rank, told) = match work {
                    Work::Kernels => {
                        ("kernels", 1, "As recorded: an interval includes time its context was switched out.")
                    }
                    Work::Graphs => {
                        ("graphs", 2, "CUDA graphs traced as a whole: their kernels are not recorded.")
                    }
                    Work::Copies => ("copies", 3, "Copies and sets, as recorded."),
                };
                let mut name = format!("{what}, context {}, stream {}", number(context), number(stream));
                if process.tenant.is_none() {
                    name = format!("{name}, pid {}, capture {}", number(process.pid), process.capture);
                }
                plain(name, rank, Some(told))
            }
            Key::Residency(_, _, context) => plain(
                format!("residency, hardware context {context:#x}"),
                0,
                Some("A slice: this hardware context held the compute engine. A hardware context is no CUDA context."),
            ),
            Key::Switches(_) => plain(
                "context switches".to_owned(),
                0,
                Some("At the end of the outgoing slice; gap_ns to the start of the next."),
            ),
            Key::Metric(_, row) => {
                let (name, unit) = self.metrics.get(&row).cloned().unwrap_or_default();
                let description = Some("Sampled hardware counter of the whole device.".to_owned());
                Label { name, rank: i64::from(i32::MAX) - 1, description, counter: Some(unit) }
            }
            Key::Units(..) => plain(
                "units of work".to_owned(),
                6,
                Some("Requests, iterations, steps; each to the end of its last operation."),
            ),
            Key::Chain(..) => plain(
                "critical chain of units".to_owned(),
                7,
                Some("What each moment of a unit was. Parts that alternate are one slice; their times stand beside it."),
            ),
            Key::Warps(..) | Key::ActiveSms(..) => {
                let (name, rank, told) = match key {
                    Key::Warps(..) => (
                        "modelled: warps (fraction of slots)",
                        4,
                        "MODELLED from launch configurations, not a hardware counter: mean resident warps of this tenant.",
                    ),
                    _ => (
                        "modelled: SMs active (fraction)",
                        5,
                        "MODELLED from launch configurations, not a hardware counter: mean SMs with a warp of this tenant.",
                    ),
                };
                let counter = Some("modelled fraction".to_owned());
                Label { name: name.to_owned(), rank, description: Some(told.to_owned()), counter }
            }
        }
    }
}

/// One table on its way out in time order.
struct Source<'a> {
    kind: Kind,
    times: &'a Int64Array,
    /// Rows by time, where the table is not sorted by it.
    order: Option<Vec<usize>>,
    next: usize,
}

/// In this order at equal times: which context is resident comes before what runs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Residency,
    Switches,
    Graphs,
    Kernels,
    Copies,
    Metrics,
    Modelled,
    Units,
    Segments,
}

impl<'a> Source<'a> {
    fn new(kind: Kind, times: &'a Int64Array) -> Self {
        Self { kind, times, order: in_order(times), next: 0 }
    }

    fn peek(&self) -> Option<(i64, Kind, usize)> {
        let row = match &self.order {
            Some(order) => order.get(self.next).copied()?,
            None => self.next,
        };
        at(self.times, row).map(|time| (time, self.kind, row))
    }
}

/// Writes a session as a Perfetto trace; returns how many events it holds (the beginning and the end of a
/// slice are two). `path` is what `out` is called in error messages.
///
/// Tables that are absent are left out of the trace; `sm_occupancy` is one of them unless the caller has
/// modelled it. Progress is reported as stage `perfetto`.
///
/// # Errors
/// [`Error::Io`] when `out` fails, [`Error::Schema`] for tables that are not what they are declared to be,
/// [`Error::Cancelled`].
pub fn write(tables: &Tables, out: &mut dyn Write, path: &Path, watch: &dyn Watch) -> Result<u64> {
    let columns = |table: &'static Table| tables.get(table.name).map(|batch| Columns::new(table, batch));
    let who = Who::read(tables)?;
    let kernels = columns(&schema::KERNELS).map(Kernels::read).transpose()?;
    let attributed = columns(&schema::KERNEL_ATTRIBUTION).map(Attribution::read).transpose()?;
    // Once for the whole table: it compares every row.
    let attributed = attributed.filter(|c| kernels.as_ref().is_some_and(|kernels| c.beside(kernels)));
    let graphs = columns(&schema::GRAPH_LAUNCHES).map(Graphs::read).transpose()?;
    let copies = columns(&schema::MEMOPS).map(Copies::read).transpose()?;
    let residency = columns(&schema::RESIDENCY).map(ResidencyRows::read).transpose()?;
    let switches = columns(&schema::SWITCHES).map(SwitchRows::read).transpose()?;
    let metrics = columns(&schema::GPU_METRICS).map(Metrics::read).transpose()?;
    let modelled = columns(&schema::SM_OCCUPANCY).map(Modelled::read).transpose()?;
    let units = columns(&schema::UNITS).map(UnitRows::read).transpose()?;
    let segments = columns(&schema::UNIT_SEGMENTS).filter(|_| units.is_some());
    let segments = segments.map(SegmentRows::read).transpose()?;

    let times = [
        (Kind::Residency, residency.as_ref().map(|t| t.start)),
        (Kind::Switches, switches.as_ref().map(|t| t.time)),
        (Kind::Graphs, graphs.as_ref().map(|t| t.work.start)),
        (Kind::Kernels, kernels.as_ref().map(|t| t.work.start)),
        (Kind::Copies, copies.as_ref().map(|t| t.work.start)),
        (Kind::Metrics, metrics.as_ref().map(|t| t.time)),
        (Kind::Modelled, modelled.as_ref().map(|t| t.start)),
        (Kind::Units, units.as_ref().map(|t| t.start)),
        (Kind::Segments, segments.as_ref().map(|t| t.start)),
    ];
    let mut sources: Vec<Source<'_>> =
        times.into_iter().filter_map(|(kind, times)| times.map(|times| Source::new(kind, times))).collect();
    let total: u64 = sources.iter().map(|s| s.times.len() as u64).sum();
    let first_ns = sources.iter().filter_map(Source::peek).map(|(time, ..)| time).min().unwrap_or(0);
    let origin_ns = first_ns.min(0);

    let mut labels = Labels::read(tables)?;
    let mut metric_rows: HashMap<(Option<u32>, Option<u32>), usize> = HashMap::new();
    if let Some(metrics) = &metrics {
        for row in 0..metrics.time.len() {
            metric_rows.entry(metrics.key(row)).or_insert_with(|| {
                labels.metrics.insert(row, metrics.label(row));
                row
            });
        }
    }
    let mut writer = Writer {
        out,
        path,
        origin_ns,
        events: 0,
        next_uuid: 0,
        names: Interned::new(proto::INTERNED_EVENT_NAMES),
        annotations: Interned::new(proto::INTERNED_ANNOTATION_NAMES),
        texts: Interned::new(proto::INTERNED_ANNOTATION_TEXTS),
        tracks: Vec::new(),
        by_key: HashMap::new(),
        open: BinaryHeap::new(),
        labels,
    };
    let attributes = [
        ("written_by", Value::Text(concat!("pyanalyze ", env!("CARGO_PKG_VERSION")))),
        ("clock", Value::Text("session clock in nanoseconds plus time_shift_ns; no clock of the machine")),
        ("time_shift_ns", Value::Int(0i64.saturating_sub(origin_ns))),
        (
            "modelled",
            Value::Text("tracks whose name begins with `modelled:` are a model, not hardware counters"),
        ),
    ];
    writer.begin(first_ns, &attributes)?;

    for done in 0..total {
        if done.is_multiple_of(4096) {
            watch.progress("perfetto", done, total)?;
        }
        let earliest = sources.iter_mut().filter_map(|s| s.peek().map(|p| (p, s))).min_by_key(|(p, _)| *p);
        let Some(((time_ns, kind, row), source)) = earliest else { break };
        source.next += 1;
        writer.close_until(time_ns)?;
        match kind {
            Kind::Kernels => {
                if let Some(t) = &kernels {
                    t.write(row, &who, attributed.as_ref(), &mut writer)?;
                }
            }
            Kind::Graphs => graphs.as_ref().map_or(Ok(()), |t| t.write(row, &who, &mut writer))?,
            Kind::Copies => copies.as_ref().map_or(Ok(()), |t| t.write(row, &who, &mut writer))?,
            Kind::Residency => residency.as_ref().map_or(Ok(()), |t| t.write(row, &mut writer))?,
            Kind::Switches => switches.as_ref().map_or(Ok(()), |t| t.write(row, &mut writer))?,
            Kind::Metrics => {
                if let Some(t) = &metrics {
                    let first = metric_rows.get(&t.key(row)).copied().unwrap_or(row);
                    let key = Key::Metric(t.key(row).0, first);
                    writer.counter(time_ns, key, t.value.value(row))?;
                }
            }
            Kind::Modelled => modelled.as_ref().map_or(Ok(()), |t| t.write(row, &mut writer))?,
            Kind::Units => units.as_ref().map_or(Ok(()), |t| t.write(row, &mut writer))?,
            Kind::Segments => {
                if let (Some(t), Some(units)) = (&segments, &units) {
                    t.write(row, units, &mut writer)?;
                }
            }
        }
    }
    writer.close_until(i64::MAX)?;
    let events = writer.events;
    out.flush().map_err(|e| Error::io("write", path, e))?;
    watch.progress("perfetto", total, total)?;
    Ok(events)
}

/// Writes a session as a Perfetto trace to a file, which is made or emptied; see [`write`].
///
/// # Errors
/// As [`write`].
pub fn write_file(tables: &Tables, path: &Path, watch: &dyn Watch) -> Result<u64> {
    let file = std::fs::File::create(path).map_err(|e| Error::io("write", path, e))?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    write(tables, &mut out, path, watch)
}

type U8s<'a> = &'a arrow_array::UInt8Array;
type U32s<'a> = &'a arrow_array::UInt32Array;
type U64s<'a> = &'a arrow_array::UInt64Array;
type I64s<'a> = &'a Int64Array;
type F64s<'a> = &'a arrow_array::Float64Array;
type Names<'a> = NameColumn<'a>;

/// What kernels, graphs and copies have in common.
struct WorkRows<'a> {
    capture: U32s<'a>,
    pid: U32s<'a>,
    device: U32s<'a>,
    context: U32s<'a>,
    stream: U32s<'a>,
    correlation: U32s<'a>,
    start: I64s<'a>,
    end: I64s<'a>,
}

impl<'a> WorkRows<'a> {
    fn read(c: &Columns<'a>) -> Result<Self> {
        Ok(Self {
            capture: c.u32("capture")?,
            pid: c.u32("pid")?,
            device: c.u32("device_id")?,
            context: c.u32("context_id")?,
            stream: c.u32("stream_id")?,
            correlation: c.u32("correlation_id")?,
            start: c.i64("start_ns")?,
            end: c.i64("end_ns")?,
        })
    }

    fn slice(
        &self,
        row: usize,
        work: Work,
        name: &str,
        mut notes: Vec<Note<'_>>,
        who: &Who,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let (capture, pid, device) = (self.capture.value(row), at(self.pid, row), self.device.value(row));
        let process = Process { device, tenant: who.of(capture, pid, device), capture, pid };
        let key = Key::Work(work, process, at(self.context, row), at(self.stream, row));
        notes.extend(at(self.correlation, row).map(|id| ("correlation_id", Value::Uint(id.into()))));
        writer.slice(self.start.value(row), self.end.value(row), key, name, &notes)
    }
}

struct Kernels<'a> {
    work: WorkRows<'a>,
    short_name: Names<'a>,
    name: Names<'a>,
    grid: [Folded<'a>; 3],
    block: [Folded<'a>; 3],
    registers: Folded<'a>,
    graph_node: U64s<'a>,
}

impl<'a> Kernels<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self {
            work: WorkRows::read(&c)?,
            short_name: c.names("short_name")?,
            name: c.names("name")?,
            grid: [c.folded("grid_x")?, c.folded("grid_y")?, c.folded("grid_z")?],
            block: [c.folded("block_x")?, c.folded("block_y")?, c.folded("block_z")?],
            registers: c.folded("registers_per_thread")?,
            graph_node: c.u64("graph_node_id")?,
        })
    }

    fn write(
        &self,
        row: usize,
        who: &Who,
        attributed: Option<&Attribution<'_>>,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let long = self.name.get(row);
        let name = self.short_name.get(row).or(long).unwrap_or("kernel without a name");
        let (grid, block) = (size(self.grid, row), size(self.block, row));
        let mut notes = Vec::with_capacity(8);
        notes.extend(long.filter(|long| *long != name).map(|long| ("name", Value::Text(long))));
        notes.extend(grid.as_deref().map(|size| ("grid", Value::Text(size))));
        notes.extend(block.as_deref().map(|size| ("block", Value::Text(size))));
        notes.extend(self.registers.at(row).map(|n| ("registers_per_thread", Value::Uint(n.into()))));
        notes.extend(at(self.graph_node, row).map(|id| ("graph_node_id", Value::Uint(id))));
        if let Some(attributed) = attributed.filter(|c| c.out.value(row) > 0) {
            notes.push(("switched_out_ns", Value::Int(attributed.out.value(row))));
            notes.push(("switched_out_basis", Value::Text(attributed.basis.get(row).unwrap_or("inferred"))));
        }
        self.work.slice(row, Work::Kernels, name, notes, who, writer)
    }
}

/// Such as `64,1,1`.
fn size(axes: [Folded<'_>; 3], row: usize) -> Option<String> {
    let [x, y, z] = axes.map(|axis| axis.at(row));
    Some(format!("{},{},{}", x?, y?, z?))
}

struct Attribution<'a> {
    start: I64s<'a>,
    end: I64s<'a>,
    out: I64s<'a>,
    basis: Names<'a>,
}

impl<'a> Attribution<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        Ok(Self { start, end, out: c.i64("switched_out_ns")?, basis: c.names("basis")? })
    }

    /// Row for row the same kernels; correlation ids would not tell, they repeat and may be null.
    fn beside(&self, kernels: &Kernels<'_>) -> bool {
        let (start, end) = (kernels.work.start, kernels.work.end);
        self.start.values() == start.values() && self.end.values() == end.values()
    }
}

struct Graphs<'a> {
    work: WorkRows<'a>,
    graph: U64s<'a>,
}

impl<'a> Graphs<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self { work: WorkRows::read(&c)?, graph: c.u64("graph_id")? })
    }

    fn write(&self, row: usize, who: &Who, writer: &mut Writer<'_>) -> Result<()> {
        let notes = at(self.graph, row).map(|id| ("graph_id", Value::Uint(id))).into_iter().collect();
        self.work.slice(row, Work::Graphs, "CUDA graph", notes, who, writer)
    }
}

struct Copies<'a> {
    work: WorkRows<'a>,
    operation: Names<'a>,
    bytes: I64s<'a>,
    kind: U8s<'a>,
}

impl<'a> Copies<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        let (operation, bytes, kind) = (c.names("operation")?, c.i64("bytes")?, c.u8("copy_kind")?);
        Ok(Self { work: WorkRows::read(&c)?, operation, bytes, kind })
    }

    fn write(&self, row: usize, who: &Who, writer: &mut Writer<'_>) -> Result<()> {
        let mut notes = vec![("bytes", Value::Int(self.bytes.value(row)))];
        notes.extend(at(self.kind, row).map(|kind| ("copy_kind", Value::Uint(kind.into()))));
        let name = self.operation.get(row).unwrap_or("copy");
        self.work.slice(row, Work::Copies, name, notes, who, writer)
    }
}

struct ResidencyRows<'a> {
    device: U32s<'a>,
    tenant: U32s<'a>,
    pid: U32s<'a>,
    context: U64s<'a>,
    start: I64s<'a>,
    end: I64s<'a>,
    ending: Names<'a>,
    complete: &'a arrow_array::BooleanArray,
    basis: Names<'a>,
}

impl<'a> ResidencyRows<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self {
            device: c.u32("device_id")?,
            tenant: c.u32("tenant_id")?,
            pid: c.u32("pid")?,
            context: c.u64("hw_context")?,
            start: c.i64("start_ns")?,
            end: c.i64("end_ns")?,
            ending: c.names("ending")?,
            complete: c.bool("complete")?,
            basis: c.names("basis")?,
        })
    }

    fn write(&self, row: usize, writer: &mut Writer<'_>) -> Result<()> {
        let key = Key::Residency(self.device.value(row), at(self.tenant, row), self.context.value(row));
        let complete = self.complete.value(row);
        let mut notes = vec![
            ("ending", Value::Text(self.ending.get(row).unwrap_or("unknown"))),
            ("complete", Value::Bool(complete)),
            ("basis", Value::Text(self.basis.get(row).unwrap_or("inferred"))),
        ];
        notes.extend(at(self.pid, row).map(|pid| ("host_pid", Value::Uint(pid.into()))));
        let name = if complete { "resident" } else { "resident (an end was not recorded)" };
        writer.slice(self.start.value(row), self.end.value(row), key, name, &notes)
    }
}

struct SwitchRows<'a> {
    device: U32s<'a>,
    time: I64s<'a>,
    tenants: [U32s<'a>; 2],
    contexts: [U64s<'a>; 2],
    gap: I64s<'a>,
    full: I64s<'a>,
    save: I64s<'a>,
    restore: I64s<'a>,
    ending: Names<'a>,
    kind: Names<'a>,
}

impl<'a> SwitchRows<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self {
            device: c.u32("device_id")?,
            time: c.i64("time_ns")?,
            tenants: [c.u32("from_tenant_id")?, c.u32("to_tenant_id")?],
            contexts: [c.u64("from_hw_context")?, c.u64("to_hw_context")?],
            gap: c.i64("gap_ns")?,
            full: c.i64("full_ns")?,
            save: c.i64("save_ns")?,
            restore: c.i64("restore_ns")?,
            ending: c.names("ending")?,
            kind: c.names("kind")?,
        })
    }

    fn write(&self, row: usize, writer: &mut Writer<'_>) -> Result<()> {
        let [from, to] = self.tenants;
        let [from_context, to_context] = self.contexts;
        let mut notes = vec![
            ("gap_ns", Value::Int(self.gap.value(row))),
            ("from_hw_context", Value::Uint(from_context.value(row))),
            ("to_hw_context", Value::Uint(to_context.value(row))),
            ("ending", Value::Text(self.ending.get(row).unwrap_or("unknown"))),
        ];
        notes.extend(at(from, row).map(|id| ("from_tenant_id", Value::Uint(id.into()))));
        notes.extend(at(to, row).map(|id| ("to_tenant_id", Value::Uint(id.into()))));
        notes.extend(at(self.full, row).map(|ns| ("full_ns", Value::Int(ns))));
        notes.extend(at(self.save, row).map(|ns| ("save_ns", Value::Int(ns))));
        notes.extend(at(self.restore, row).map(|ns| ("restore_ns", Value::Int(ns))));
        let name = self.kind.get(row).unwrap_or("switch");
        writer.instant(self.time.value(row), Key::Switches(self.device.value(row)), name, &notes)
    }
}

struct Metrics<'a> {
    device: U32s<'a>,
    time: I64s<'a>,
    metric: Names<'a>,
    unit: Names<'a>,
    value: F64s<'a>,
}

impl<'a> Metrics<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        let (device, time) = (c.u32("device_id")?, c.i64("time_ns")?);
        Ok(Self { device, time, metric: c.names("metric")?, unit: c.names("unit")?, value: c.f64("value")? })
    }

    fn key(&self, row: usize) -> (Option<u32>, Option<u32>) {
        (at(self.device, row), self.metric.key(row))
    }

    fn label(&self, row: usize) -> (String, String) {
        let name = self.metric.get(row).unwrap_or("metric without a name").to_owned();
        (name, self.unit.get(row).unwrap_or("").to_owned())
    }
}

struct Modelled<'a> {
    device: U32s<'a>,
    tenant: U32s<'a>,
    start: I64s<'a>,
    end: I64s<'a>,
    warps: F64s<'a>,
    active: F64s<'a>,
}

impl<'a> Modelled<'a> {
    fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self {
            device: c.u32("device_id")?,
            tenant: c.u32("tenant_id")?,
            start: c.i64("start_ns")?,
            end: c.i64("end_ns")?,
            warps: c.f64("warps")?,
            active: c.f64("sm_active")?,
        })
    }

    fn write(&self, row: usize, writer: &mut Writer<'_>) -> Result<()> {
        let (device, tenant) = (self.device.value(row), self.tenant.value(row));
        let (start_ns, end_ns) = (self.start.value(row), self.end.value(row));
        // The table is sorted by device and tenant, then time: a bin that the next row does not go on from is
        // the last of its tenant.
        let next = row + 1;
        let goes_on = at(self.device, next) == Some(device)
            && at(self.tenant, next) == Some(tenant)
            && at(self.start, next) == Some(end_ns);
        for (key, values) in
            [(Key::Warps(device, tenant), self.warps), (Key::ActiveSms(device, tenant), self.active)]
        {
            let track = writer.counter(start_ns, key, values.value(row))?;
            if !goes_on {
                writer.open.push(Reverse((end_ns.max(start_ns), Closing::Counter { track })));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
