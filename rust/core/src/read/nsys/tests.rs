use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::Array;
use rusqlite::Connection;

use super::*;
use crate::base::watch::Unwatched;

/// An export made of these statements.
fn export(sql: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    (folder, path)
}

fn load(sql: &str, want: &Want) -> Tables {
    let (_folder, path) = export(sql);
    read(&path, 3, want, &Unwatched).unwrap()
}

fn table<'a>(tables: &'a Tables, name: &str) -> Columns<'a> {
    Columns::new(schema::table(name).unwrap(), &tables[name])
}

fn count(tables: &Tables, counter: Counter) -> u64 {
    let quality = table(tables, "quality");
    let names = quality.names("name").unwrap();
    let row = (0..quality.rows()).find(|r| names.get(*r) == Some(counter.name));
    row.map_or(0, |r| quality.u64("count").unwrap().value(r))
}

fn source(tables: &Tables, name: &str) -> (String, u64, bool) {
    let sources = table(tables, "sources");
    let row = (0..sources.rows()).find(|r| sources.names("source").unwrap().get(*r) == Some(name)).unwrap();
    let state = sources.names("state").unwrap().get(row).unwrap().to_owned();
    (state, sources.u64("rows").unwrap().value(row), sources.text("how").unwrap().is_valid(row))
}

/// Global id of a process on host 1.
fn global(pid: i64) -> i64 {
    (1 << 48) | (pid << 24)
}

#[test]
fn a_database_of_something_else_is_refused() {
    let (_folder, path) = export("CREATE TABLE PROCESSES (a); CREATE TABLE recipes (b)");
    let error = read(&path, 0, &Want::all(), &Unwatched).unwrap_err();
    assert!(matches!(error, Error::NotAnExport { .. }));
    assert!(error.to_string().contains("CUPTI_ACTIVITY_KIND_KERNEL"), "{error}");
}

#[test]
fn columns_that_are_equal_are_held_once() {
    let sql = format!(
        "CREATE TABLE StringIds (id, value);
        INSERT INTO StringIds VALUES (1, 'void f<int>(int)'), (2, 'f'), (3, 'void g<int>(int)'), (4, 'g');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
            demangledName, shortName, gridX, gridY, gridZ, blockX, blockY, blockZ);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1, 1, 5, {mine}, 1, 2, 8, 1, 1, 64, 1, NULL),
            (30, 40, 0, 1, 1, 6, {mine}, 3, 4, 9, 2, 2, 32, 1, 1)",
        mine = global(77)
    );
    let tables = load(&sql, &Want::parse(["kernels"]).unwrap());
    let kernels = table(&tables, "kernels");
    let u32s = |name: &str| {
        let column = kernels.folded::<UInt32Type>(name).unwrap();
        [0, 1].map(|row| column.at(row))
    };
    assert_eq!([u32s("grid_x"), u32s("grid_y")], [[Some(8), Some(9)], [Some(1), Some(2)]]);
    assert_eq!([u32s("grid_z"), u32s("block_x")], [[Some(1), Some(2)], [Some(64), Some(32)]]);
    assert_eq!([u32s("context_id"), u32s("block_y")], [[Some(1); 2]; 2]);
    assert_eq!(u32s("block_z"), [None, Some(1)]);
    let texts = |name: &str| {
        let names = kernels.names(name).unwrap();
        [0, 1].map(|row| names.get(row).unwrap().to_owned())
    };
    assert_eq!(texts("name"), ["void f<int>(int)", "void g<int>(int)"]);
    assert_eq!(texts("short_name"), ["f", "g"]);
    let held = |name: &str| kernels.u32(name).unwrap().values().as_ptr();
    assert_eq!(held("context_id"), held("stream_id"));
    assert_ne!(held("context_id"), held("correlation_id"));
    // What belongs to the launch has one column of keys.
    let launch = |name: &str| {
        let column = tables["kernels"].column_by_name(name).unwrap();
        column.as_dictionary::<UInt16Type>().keys().values().as_ptr()
    };
    assert_eq!(launch("grid_y"), launch("block_z"));
    let keys = |name: &str| kernels.names(name).unwrap().keys().values().as_ptr();
    assert_eq!(keys("name"), keys("short_name"));
}

#[test]
fn launches_of_rows_in_any_order_stay_with_their_rows() {
    // Three launch configurations; of the second the grid is no number, and the first row of the third is no interval.
    let configurations = ["8, 1, 128", "'wide', 2, 64", "300, 1, NULL"];
    let rows: Vec<String> = (0..90_i64)
        .map(|n| {
            let start = 10_000 - 100 * n;
            let end = if n == 2 { start - 1 } else { start + 50 };
            format!("({start}, {end}, 0, 1, 1, {n}, {}, {})", global(77), configurations[n as usize % 3])
        })
        .collect();
    let calls: Vec<String> = [(71, 40), (70, 40), (72, 10)]
        .iter()
        .map(|(tid, start)| format!("({start}, {}, {}, 1, 0)", start + 5, global(77) | tid))
        .collect();
    let sql = format!(
        "CREATE TABLE StringIds (id, value); INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
            gridX, gridY, blockX);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES {};
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, nameId, returnValue);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES {}",
        rows.join(", "),
        calls.join(", ")
    );
    let tables = load(&sql, &Want::parse(["kernels", "api_calls"]).unwrap());
    let kernels = table(&tables, "kernels");
    assert_eq!(kernels.rows(), 89);
    assert_eq!(count(&tables, quality::BAD_INTERVAL), 1);
    // 30 rows with text in place of a grid.
    assert_eq!(count(&tables, quality::VALUE_OUT_OF_RANGE), 30);
    let of = |name: &str| kernels.folded::<UInt32Type>(name).unwrap();
    let ids = kernels.u32("correlation_id").unwrap();
    for row in 0..89 {
        let expected = match ids.value(row) % 3 {
            0 => [Some(8), Some(1), Some(128), None],
            1 => [None, Some(2), Some(64), None],
            _ => [Some(300), Some(1), None, None],
        };
        let found = ["grid_x", "grid_y", "block_x", "grid_z"].map(|name| of(name).at(row));
        assert_eq!(found, expected, "kernel {}", ids.value(row));
    }
    assert!(ids.values().is_sorted_by(|one, next| one > next), "times count down in the file");
    let keys = ["grid_x", "block_x", "grid_z"].map(|name| of(name).keys().unwrap().values().as_ptr());
    assert_eq!(keys, [keys[0]; 3], "one column of keys, in the new order too");
    let calls = table(&tables, "api_calls");
    let threads = calls.folded::<UInt32Type>("tid").unwrap();
    // Of one time, in the order of their threads.
    assert_eq!([0, 1, 2].map(|row| threads.at(row)), [Some(72), Some(70), Some(71)]);
    assert_eq!(calls.folded::<UInt32Type>("pid").unwrap().at(2), Some(77));
}

#[test]
fn memory_that_was_allocated_and_freed() {
    // As nsys 2021 declares it. The third row is of an operation that there is not, the fourth has no process.
    let sql = format!(
        "CREATE TABLE StringIds (id, value);
        CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
            memoryOperationType, name, correlationId);
        INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
            (90, {mine}, 0, 1, 7, 0, 4096, 2, 1, NULL, 9), (50, {mine}, 0, 1, 7, 0, 4096, 2, 0, NULL, 5),
            (60, {mine}, 0, 1, 7, 0, 4096, 2, 7, NULL, 6), (70, NULL, 0, 1, 7, 0, 64, 1, 0, NULL, 7)",
        mine = global(77)
    );
    let tables = load(&sql, &Want::analysis());
    assert_eq!(source(&tables, "allocations"), ("present".to_owned(), 4, false));
    let found = table(&tables, "allocations");
    assert_eq!(found.i64("time_ns").unwrap().values(), &[50, 70, 90]);
    let operation = found.names("operation").unwrap();
    let said: Vec<_> = (0..3).map(|row| operation.get(row).unwrap()).collect();
    assert_eq!(said, ["allocated", "allocated", "freed"]);
    assert_eq!(found.i64("bytes").unwrap().values(), &[4096, 64, 4096]);
    assert_eq!(found.u8("memory_kind").unwrap().values(), &[2, 1, 2]);
    assert_eq!(found.u32("pid").unwrap().iter().collect::<Vec<_>>(), [Some(77), None, Some(77)]);
    assert_eq!(count(&tables, quality::NO_PIDS), 1);
    assert!(!load(&sql, &Want::parse(["kernels"]).unwrap()).contains_key("allocations"));
}

#[test]
fn absent_empty_unread_and_present_are_told_apart() {
    let sql = "CREATE TABLE StringIds (id, value); CREATE TABLE FECS_EVENTS (tag, timestamp);
        CREATE TABLE NVTX_EVENTS (start); INSERT INTO NVTX_EVENTS VALUES (1), (2);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start, end, bytes);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (5, 9, 64)";
    let tables = load(sql, &Want::analysis());
    assert_eq!(source(&tables, "kernels"), ("absent".to_owned(), 0, true));
    assert_eq!(source(&tables, "switch_events"), ("empty".to_owned(), 0, true));
    assert_eq!(source(&tables, "nvtx"), ("unread".to_owned(), 2, false));
    assert_eq!(source(&tables, "copies"), ("present".to_owned(), 1, false));
    assert!(tables.contains_key("kernels") && !tables.contains_key("nvtx"));
    assert_eq!(tables["kernels"].num_rows(), 0);
    assert_eq!(count(&tables, quality::NO_KERNELS), 1);
    assert_eq!(count(&tables, quality::NO_METADATA), 1);
    let capture = table(&tables, "capture");
    assert_eq!(capture.i64("start_ns").unwrap().value(0), 5);
    assert_eq!(capture.i64("end_ns").unwrap().value(0), 9);
    let parsed = Want::parse(["kernels", "nvtx"]).unwrap();
    assert_eq!(parsed, Want { kernels: true, nvtx: true, ..Want::none() });
    assert!(matches!(Want::parse(["kernel"]), Err(Error::Argument(_))));
}

/// Two ids of one name, a name that is nowhere, text instead of an id, a row that is no interval.
#[test]
fn kernels_are_summed_up_without_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.sqlite");
    let sql = "CREATE TABLE StringIds (id INTEGER, value TEXT);
        INSERT INTO StringIds VALUES (1, 'first'), (2, 'second'), (3, 'first');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, demangledName);";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let none = kernel_summary(&path, &Unwatched).unwrap();
    assert_eq!(none["kernel_summary"].num_rows(), 0);
    assert_eq!(source(&none, "kernels"), ("empty".to_owned(), 0, true));
    assert_eq!(count(&none, quality::NO_KERNELS), 1);
    let rows = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
            (10, 12, 1), (20, 26, 3), (30, 34, 1), (40, 49, 1),
            (50, 150, 2), (60, 50, 2), (60, NULL, 2),
            (70, 75, 9), (80, 88, 'third'), (90, 98, 'third');
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, graphId);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2, 3), (4, 5, 6)";
    Connection::open(&path).unwrap().execute_batch(rows).unwrap();
    let made = kernel_summary(&path, &Unwatched).unwrap();
    assert_eq!(source(&made, "kernels"), ("present".to_owned(), 10, false));
    assert_eq!(source(&made, "graph_launches"), ("unread".to_owned(), 2, false));
    assert_eq!(count(&made, quality::BAD_INTERVAL), 2);
    assert_eq!(count(&made, quality::NAME_MISSING), 1);
    assert_eq!(count(&made, quality::GRAPHS_TRACED_WHOLE), 2);
    assert_eq!(count(&made, quality::NO_KERNELS), 0);
    let column = |name: &str| made["kernel_summary"].column_by_name(name).unwrap().clone();
    let names = column("name");
    let names: Vec<Option<&str>> = names.as_string::<i32>().iter().collect();
    // 16 and 21 together: of equal totals the smaller name would be first.
    assert_eq!(names, [Some("second"), Some("first"), Some("third"), None]);
    assert_eq!(column("kernels").as_primitive::<UInt64Type>().values(), &[1, 4, 2, 1]);
    assert_eq!(column("total_ns").as_primitive::<Int64Type>().values(), &[100, 21, 16, 5]);
    assert_eq!(column("mean_ns").as_primitive::<Float64Type>().values(), &[100.0, 5.25, 8.0, 5.0]);
    assert_eq!(column("median_ns").as_primitive::<Float64Type>().values(), &[100.0, 5.0, 8.0, 5.0]);
    assert_eq!(column("min_ns").as_primitive::<Int64Type>().values(), &[100, 2, 8, 5]);
    assert_eq!(column("max_ns").as_primitive::<Int64Type>().values(), &[100, 9, 8, 5]);
    let deviations = column("stddev_ns");
    let deviations = deviations.as_primitive::<Float64Type>();
    // Of 2, 4, 6 and 9 the squares of the distances from 5.25 add up to 26.75.
    assert_eq!(deviations.value(1), (26.75_f64 / 3.0).sqrt());
    assert!(deviations.is_null(0) && deviations.value(2) == 0.0 && deviations.is_null(3));
}

/// Columns in another order and case, rows unsorted, words and huge numbers where integers belong.
#[test]
fn odd_kernels_are_survived_and_counted() {
    let sentinel = i64::from_be_bytes([0xFE, 0, 0, 0, 0, 0, 0, 0]);
    let (a, b) = (global(11), global(12));
    let sql = format!(
        "CREATE TABLE stringids (value TEXT, id INTEGER);
        INSERT INTO stringids VALUES ('b' || char(0) || 'c', 1), ('same', 2), ('same', 3);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
            (gridX, END, demangledName, globalPid, start, deviceId, correlationId, registersPerThread);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
            (1, 30, 1, {a}, 20, 0, 2, 'many'),
            (2, 30, 2, {a}, 20, 0, 1, 32),
            (-1, 10, 3, {b}, 10, 0, 1, 8589934592),
            (4, 45, 99, {sentinel}, 40, 0, 9, '16'),
            (5, 55, 'text name', NULL, 50, 0, 9, 1.5),
            (6, 59, 1, {a}, 60, 0, 9, 1),
            (7, NULL, 1, {a}, 70, 0, 9, 1)"
    );
    let tables = load(&sql, &Want::analysis());
    let kernels = table(&tables, "kernels");
    let pids: Vec<_> = kernels.u32("pid").unwrap().iter().collect();
    assert_eq!(pids, [Some(12), Some(11), Some(11), None, None]);
    assert_eq!(kernels.i64("start_ns").unwrap().values(), &[10, 20, 20, 40, 50]);
    // Ties are broken by the correlation id, not by the order of the rows.
    assert_eq!(kernels.u32("correlation_id").unwrap().values(), &[1, 1, 2, 9, 9]);
    let names = kernels.names("name").unwrap();
    let names: Vec<_> = (0..5).map(|r| names.get(r)).collect();
    assert_eq!(names, [Some("same"), Some("same"), Some("b\0c"), None, Some("text name")]);
    let of_launch = |name: &str| {
        let column = kernels.folded::<UInt32Type>(name).unwrap();
        (0..5).map(|row| column.at(row)).collect::<Vec<_>>()
    };
    assert_eq!(of_launch("grid_x"), [None, Some(2), Some(1), Some(4), Some(5)]);
    assert_eq!(of_launch("registers_per_thread"), [None, Some(32), None, Some(16), None]);
    assert_eq!(count(&tables, quality::BAD_INTERVAL), 2);
    assert_eq!(count(&tables, quality::SENTINEL_PID), 1);
    assert_eq!(count(&tables, quality::NO_PIDS), 1);
    assert_eq!(count(&tables, quality::NAME_MISSING), 1);
    // -1 as a grid; `many`, 2^33 and 1.5 as registers.
    assert_eq!(count(&tables, quality::VALUE_OUT_OF_RANGE), 4);
    // No TARGET_INFO_GPU, but a device that rows can point to.
    assert_eq!(count(&tables, quality::NO_DEVICE_INFO), 1);
    assert_eq!(table(&tables, "devices").u32("device_id").unwrap().values(), &[0]);
    let processes = table(&tables, "processes");
    assert_eq!(processes.u32("pid").unwrap().values(), &[11, 12]);
    assert!(processes.bool("traced").unwrap().iter().all(|t| t == Some(true)));
}

#[test]
fn of_several_layouts_the_one_with_rows_is_read() {
    let tables = load(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V3 (start, end);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2)",
        &Want::analysis(),
    );
    assert_eq!(tables["kernels"].num_rows(), 1);
}

#[test]
fn a_view_in_place_of_a_table_is_counted() {
    let tables = load(
        "CREATE TABLE StringIds (id, value);
        CREATE TABLE every (start, end);
        INSERT INTO every VALUES (1, 2);
        CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM every;
        CREATE VIEW mine AS SELECT * FROM every",
        &Want::analysis(),
    );
    assert_eq!(tables["kernels"].num_rows(), 0);
    assert_eq!(count(&tables, quality::TABLE_NOT_STORED), 1);
}

const GPUS: &str = "CREATE TABLE TARGET_INFO_GPU (id, cuDevice, name, uuid, smCount, maxBlocksPerSm);";

fn kernel_on(pid: i64, device: i64, start: i64) -> String {
    let g = global(pid);
    format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {start} + 1, {device}, {g});")
}

const KERNELS: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, globalPid);";

/// nsys listed process 11 before the program replaced its launcher, and 12 not at all; 13 has its own name.
#[test]
fn a_launcher_is_named_by_the_threads_of_the_program() {
    let thread = |pid: i64, tid: i64, name: i64| {
        format!("INSERT INTO ThreadNames VALUES ({}, {name});", pid * 16_777_216 + tid)
    };
    let sql = format!(
        "{GPUS} {KERNELS} CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value);
        CREATE TABLE PROCESSES (globalPid, pid, name); CREATE TABLE ThreadNames (globalTid, nameId);
        INSERT INTO StringIds VALUES (1, 'jacobi'), (2, '[NSys]'), (3, 'MPI Rank 3'), (4, 'testqo'), (5, 'worker');
        INSERT INTO PROCESSES VALUES ({}, 11, 'nsys-launcher'), ({}, 13, './own');
        {} {} {} {}",
        11 * 16_777_216_i64,
        13 * 16_777_216_i64,
        [thread(11, 11, 3), thread(11, 20, 1), thread(11, 21, 1), thread(11, 22, 2), thread(11, 23, 2)].concat(),
        [thread(12, 12, 4), thread(12, 13, 5), thread(12, 14, 5), thread(13, 13, 4)].concat(),
        [thread(11, 24, 2), thread(14, 14, 1)].concat(),
        [kernel_on(11, 0, 10), kernel_on(12, 0, 20), kernel_on(13, 0, 30)].concat(),
    );
    let tables = load(&sql, &Want::analysis());
    let processes = table(&tables, "processes");
    assert_eq!(processes.u32("pid").unwrap().values(), &[11, 12, 13]);
    let names: Vec<_> = processes.text("name").unwrap().iter().collect();
    assert_eq!(names, [Some("jacobi"), Some("testqo"), Some("./own")]);
}

/// Each process has its own ordinals: both call their GPU 0.
#[test]
fn ordinals_belong_to_a_process() {
    let sql = format!(
        "{GPUS} {KERNELS} CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid);
        INSERT INTO TARGET_INFO_GPU VALUES
            (7, 1, 'A', '1-2', 80, 0), (4, 0, 'B', '0000-00', 0, 16);
        INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (7, 0, 11), (4, 0, 12); {} {} {} {}",
        kernel_on(11, 0, 10),
        kernel_on(12, 0, 20),
        kernel_on(13, 1, 30),
        kernel_on(13, 5, 40),
    );
    let tables = load(&sql, &Want::analysis());
    let devices = table(&tables, "devices");
    assert_eq!(devices.u32("device_id").unwrap().values(), &[0, 1, 5]);
    let ids: Vec<_> = devices.i64("gpu_id").unwrap().iter().collect();
    assert_eq!(ids, [Some(4), Some(7), None]);
    assert_eq!(table(&tables, "kernels").u32("device_id").unwrap().values(), &[1, 0, 1, 5]);
    assert_eq!(count(&tables, quality::DEVICE_UNKNOWN), 1);
    assert_eq!(count(&tables, quality::DEVICE_MAPPING_GUESSED), 0);
    // Zeros are no numbers.
    assert_eq!(devices.u32("sm_count").unwrap().null_count(), 2);
    assert!(
        devices.u32("sm_count").unwrap().is_null(0) && devices.u32("max_blocks_per_sm").unwrap().is_null(1)
    );
    assert!(devices.text("uuid").unwrap().is_null(0));
    assert_eq!(devices.text("uuid").unwrap().value(1), "GPU-1-2");
    assert_eq!(devices.names("limits_basis").unwrap().get(1), Some("unknown"));
}

/// As in exports of reports that nsys 2020 and 2021 recorded.
#[test]
fn what_the_table_of_gpus_lacks_stands_in_the_text_of_the_system() {
    let sql = format!(
        r#"{GPUS} ALTER TABLE TARGET_INFO_GPU ADD COLUMN totalMemory;
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value);
        INSERT INTO TARGET_INFO_GPU VALUES
            (0, NULL, 'A', '1-2', NULL, NULL, NULL), (1, NULL, 'A', '3-4', 72, NULL, NULL),
            (2, NULL, 'A', NULL, NULL, NULL, NULL);
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('GpuInfo', 'no JSON'), ('GpuInfo', '{{"Gpus": [
            {{"Uuid": "3-4", "SmCount": 80, "TotalMemory": "16945512448"}},
            {{"Uuid": "1-2", "SmCount": 84, "TotalMemory": "0"}}, {{"SmCount": 99}}, 7]}}');"#
    );
    let tables = load(&sql, &Want::all());
    let devices = table(&tables, "devices");
    let sms: Vec<_> = devices.u32("sm_count").unwrap().iter().collect();
    assert_eq!(sms, [Some(84), Some(72), None]);
    let memory: Vec<_> = devices.i64("memory_bytes").unwrap().iter().collect();
    assert_eq!(memory, [None, Some(16_945_512_448), None]);
}

#[test]
fn without_ordinals_the_order_of_ids_is_a_guess_unless_there_is_one_gpu() {
    let two = format!(
        "{GPUS} {KERNELS} INSERT INTO TARGET_INFO_GPU (id) VALUES (9), (5); {}",
        kernel_on(11, 1, 10)
    );
    let tables = load(&two, &Want::analysis());
    assert_eq!(count(&tables, quality::DEVICE_MAPPING_GUESSED), 1);
    let device = table(&tables, "kernels").u32("device_id").unwrap().value(0);
    assert_eq!(device, 1);
    assert_eq!(table(&tables, "devices").i64("gpu_id").unwrap().value(1), 9);
    let one =
        format!("{GPUS} {KERNELS} INSERT INTO TARGET_INFO_GPU (id) VALUES (9); {}", kernel_on(11, 0, 10));
    assert_eq!(count(&load(&one, &Want::analysis()), quality::DEVICE_MAPPING_GUESSED), 0);
}

#[test]
fn switch_records_go_by_the_names_of_their_tags() {
    let sql = format!(
        "{GPUS} INSERT INTO TARGET_INFO_GPU VALUES (2, 0, 'A', NULL, 80, 16);
        CREATE TABLE ENUM_GPU_CTX_SWITCH (id, name, label);
        INSERT INTO ENUM_GPU_CTX_SWITCH VALUES (4, 'RESTORE_START', ''), (3, 'SAVE_END', ''), (9, 'NEW_TAG', '');
        CREATE TABLE GPU_CONTEXT_SWITCH_EVENTS (tag, vmId, seqNo, contextId, timestamp, globalPid, gpuId);
        INSERT INTO GPU_CONTEXT_SWITCH_EVENTS VALUES
            (3, 0, 65536, 1048578, 20, {pid}, 2), (4, 0, 65535, 1048578, 10, {pid}, 2),
            (9, 0, 1, 7, 30, {pid}, 2), (4, 0, 2, 0, 40, {other}, 2),
            (4, 0, 3, 4294967295, 50, {kernel}, 2), (4, 0, 4, 8, 60, {pid}, 6)",
        pid = global(77),
        other = 1_i64 << 48,
        kernel = global(0xFF_FFFF),
    );
    let tables = load(&sql, &Want::analysis());
    let events = table(&tables, "switch_events");
    assert_eq!(events.u8("tag").unwrap().values(), &[8, 7, 255, 8, 8, 8]);
    assert_eq!(events.u16("sequence").unwrap().values(), &[65535, 0, 1, 2, 3, 4]);
    let pids: Vec<_> = events.u32("pid").unwrap().iter().collect();
    assert_eq!(pids, [Some(77), Some(77), Some(77), None, None, Some(77)]);
    assert_eq!(events.u32("device_id").unwrap().values(), &[0, 0, 0, 0, 0, 6]);
    for counter in [
        quality::SWITCH_UNKNOWN_TAG,
        quality::SWITCH_UNPRIVILEGED,
        quality::SWITCH_KERNEL_CLIENT,
        quality::SWITCH_DEVICE_UNKNOWN,
    ] {
        assert_eq!(count(&tables, counter), 1, "{}", counter.name);
    }
    // Without a traced process nobody is.
    assert_eq!(tables["processes"].num_rows(), 0);
}

#[test]
fn metrics_of_both_forms() {
    let names = "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, metricId, metricName);
        INSERT INTO TARGET_INFO_GPU_METRICS VALUES (256, 1, 'SMs Active [Throughput %]'), (257, 1, 'GPC Clock');
        CREATE TABLE GPU_METRICS (rawTimestamp, timestamp, typeId, metricId, value);
        INSERT INTO GPU_METRICS VALUES (9, 10, 256, 1, 50), (NULL, 20, 257, 1, -1994967296), (30, NULL, 257, 1, 3),
            (5, 5, 256, 8, 1), (NULL, 40, 257, 1, -128)";
    let tables =
        load(&format!("{GPUS} INSERT INTO TARGET_INFO_GPU (id) VALUES (0), (5); {names}"), &Want::all());
    let metrics = table(&tables, "gpu_metrics");
    assert_eq!(metrics.i64("time_ns").unwrap().values(), &[10, 20, 30, 40]);
    assert_eq!(metrics.f64("value").unwrap().values(), &[50.0, 2.3e9, 3.0, 128.0]);
    assert_eq!(metrics.names("metric").unwrap().get(0), Some("SMs Active"));
    assert_eq!(metrics.names("unit").unwrap().get(0), Some("Throughput %"));
    assert_eq!(metrics.names("unit").unwrap().get(1), None);
    // The low byte of the type is the GPU's id; there is no GPU 1.
    let devices: Vec<_> = metrics.u32("device_id").unwrap().iter().collect();
    assert_eq!(devices, [Some(0), None, None, None]);
    assert_eq!(count(&tables, quality::METRICS_DEVICE_UNKNOWN), 3);
    assert_eq!(count(&tables, quality::METRIC_WRAPPED), 2);
    assert_eq!(count(&tables, quality::METRIC_UNNAMED), 1);

    let json = r#"CREATE TABLE GENERIC_EVENT_SOURCES (sourceId, data); CREATE TABLE GENERIC_EVENT_TYPES (typeId, sourceId);
        CREATE TABLE GENERIC_EVENTS (rawTimestamp, timestamp, typeId, data);
        INSERT INTO GENERIC_EVENT_SOURCES VALUES (1, '{"Name": "GpuMetrics"}'), (2, '{"Name": "ftrace"}');
        INSERT INTO GENERIC_EVENT_TYPES VALUES (10, 1), (20, 2);
        INSERT INTO GENERIC_EVENTS VALUES (7, NULL, 10, '{"SM Active": "12", "A\/B": 3}'), (8, NULL, 20, '{"x": "1"}'),
            (9, NULL, 10, 'no json')"#;
    let tables = load(&format!("{GPUS} INSERT INTO TARGET_INFO_GPU (id) VALUES (5); {json}"), &Want::all());
    let metrics = table(&tables, "gpu_metrics");
    assert_eq!(metrics.names("metric").unwrap().get(0), Some("A/B"));
    assert_eq!(metrics.f64("value").unwrap().values(), &[3.0, 12.0]);
    assert_eq!(metrics.u32("device_id").unwrap().values(), &[0, 0]);
    assert_eq!(count(&tables, quality::VALUE_OUT_OF_RANGE), 1);
}

#[test]
fn where_nsys_says_that_nothing_of_cuda_ran_its_tables_are_empty_and_the_program_is_named() {
    let sql = |messages: &str, command: &str| {
        format!(
            "CREATE TABLE StringIds (id, value); CREATE TABLE DIAGNOSTIC_EVENT (severity, text);
            CREATE TABLE META_DATA_CAPTURE (name, value);
            INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:COLLECT_CUDA_TRACE', 'false'),
                ('PROCESS_0:COMMAND', '{command}'), ('PROCESS_0:ARGUMENT_0', 'secret.jl');
            INSERT INTO DIAGNOSTIC_EVENT VALUES {messages}"
        )
    };
    let settings = |tables: &Tables| -> Vec<(String, String)> {
        let found = table(tables, "configured");
        let (keys, values) = (found.names("key").unwrap(), found.text("value").unwrap());
        (0..found.rows()).map(|r| (keys.get(r).unwrap().to_owned(), values.value(r).to_owned())).collect()
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let none = "(2, 'No CUDA events collected. Does the process use CUDA?')";
    let tables = load(&sql(none, "/opt/bin/julia"), &Want::all());
    for name in OF_CUDA {
        assert_eq!(source(&tables, name), ("empty".to_owned(), 0, true), "{name}");
    }
    assert_eq!(source(&tables, "switch_events").0, "absent");
    assert_eq!(settings(&tables), [pair("cuda_trace", "true"), pair("program", "julia")]);
    // A whole script may hold anything.
    let tables = load(&sql(none, "export TOKEN=SECRET; /opt/bin/julia --x=1"), &Want::all());
    assert_eq!(settings(&tables), [pair("cuda_trace", "true")]);
    // Another process used CUDA, and the tables of that were removed.
    let other = format!("{none}, (1, 'Number of CUDA events collected: \t12.')");
    let tables = load(&sql(&other, "julia"), &Want::all());
    assert_eq!(source(&tables, "kernels").0, "absent");
    assert_eq!(settings(&tables), []);
}

/// The environment holds secrets; the name of the host is not kept either.
#[test]
fn of_the_metadata_only_what_is_listed_comes_out() {
    let sql = format!(
        "CREATE TABLE META_DATA_EXPORT (name, value); CREATE TABLE META_DATA_CAPTURE (name, value);
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value); CREATE TABLE DIAGNOSTIC_EVENT (severity, text);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs, utcTime, localTime);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_NAME', 'pyanalyze fixture'),
            ('EXPORT_SCHEMA_VERSION', '3.100.0'), ('EXPORT_PARAM_TIME_SHIFT', '500'), ('EXPORT_USER', 'SECRET');
        INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:PID', '42'),
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'TOKEN=SECRET'),
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=\"0=2G\"'),
            ('PROCESS_0:ARGUMENT_3', 'CUDA_VISIBLE_DEVICES=1 PASSWORD=SECRET run'),
            ('COLLECT_GPU_CTX_SW_TRACE', 'true');
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'SECRET'), ('CudaDriverVersion', '13010'),
            ('SoftwareReleaseVersion', '6.6.87.2-microsoft-standard-WSL2'),
            ('DeviceEnvironment', 'A=SECRET;NVSHARE_QUANTUM=30;B=SECRET');
        INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'SECRET'), (2, 'SECRET'), (3, '5 buffers were dropped in SECRET');
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES
            (1000000, '2024-03-01T00:30:00', '2024-02-29T19:00:01'); {KERNELS} {}",
        kernel_on(42, 0, 10)
    );
    let tables = load(&sql, &Want::all());
    for (name, batch) in &tables {
        assert!(!format!("{batch:?}").contains("SECRET"), "{name}");
    }
    let configured = table(&tables, "configured");
    let rows: Vec<_> = (0..configured.rows())
        .map(|r| {
            let names = |column| configured.names(column).unwrap().get(r).unwrap().to_owned();
            let pid = configured.u32("pid").unwrap();
            let value = configured.text("value").unwrap().value(r).to_owned();
            (names("source"), pid.is_valid(r).then(|| pid.value(r)), names("key"), value)
        })
        .collect();
    let row = |source: &str, pid, key: &str, value: &str| (source.into(), pid, key.into(), value.into());
    assert_eq!(
        rows,
        [
            row("capture-settings", None, "gpu_context_switch_trace", "true"),
            row("capture-settings", None, "wsl2", "true"),
            row("command-line", Some(42), "CUDA_VISIBLE_DEVICES", "1"),
            row("environment", None, "NVSHARE_QUANTUM", "30"),
            row("environment", Some(42), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
        ]
    );
    let capture = table(&tables, "capture");
    assert_eq!(capture.i64("utc_origin_ns").unwrap().value(0), 999_500);
    assert_eq!(capture.i64("export_shift_ns").unwrap().value(0), 500);
    assert_eq!(capture.i32("utc_offset_s").unwrap().value(0), -5 * 3600 - 1800);
    assert_eq!(capture.text("cuda_driver_version").unwrap().value(0), "13.1");
    assert!(capture.bool("synthetic").unwrap().value(0));
    for counter in [
        quality::SYNTHETIC_CAPTURE,
        quality::NEWER_THAN_TESTED,
        quality::DIAGNOSTIC_WARNING,
        quality::DIAGNOSTIC_LOSS,
    ] {
        assert_eq!(count(&tables, counter), 1, "{}", counter.name);
    }
}

#[test]
fn a_time_before_1970_is_no_start_of_a_recording() {
    for said in ["-9223372036854775808", "-1"] {
        let sql = format!(
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs);
            INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({said}); {KERNELS} {}",
            kernel_on(1, 0, 5)
        );
        let tables = load(&sql, &Want::all());
        assert!(table(&tables, "capture").i64("utc_origin_ns").unwrap().is_null(0), "{said}");
        assert_eq!(count(&tables, quality::NO_SESSION_START), 1, "{said}");
    }
}

#[test]
fn times_that_are_epoch_times_stay_so() {
    for said in ["true", "false"] {
        let sql = format!(
            "CREATE TABLE META_DATA_EXPORT (name, value);
            INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_NORMALIZE', '{said}');
            CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs);
            INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000); {KERNELS} {}",
            kernel_on(1, 0, 1_700_000_000_000_000_005)
        );
        let tables = load(&sql, &Want::all());
        let capture = table(&tables, "capture");
        assert!(capture.bool("export_normalized").unwrap().value(0), "{said}");
        assert_eq!(capture.i64("utc_origin_ns").unwrap().value(0), 0, "{said}");
        assert_eq!(capture.i64("start_ns").unwrap().value(0), 1_700_000_000_000_000_005);
    }
}

#[test]
fn sentinels_are_nobody() {
    assert_eq!(pid_of(Some(global(30428))), Owner::Process(30428));
    assert_eq!(pid_of(None), Owner::Unknown);
    for odd in [0, -1, i64::from_be_bytes([0xFE, 0, 0, 0, 0, 0, 0, 0]), (0xFE_i64 << 48) | (5 << 24)] {
        assert_eq!(pid_of(Some(odd)), Owner::Nobody, "{odd:#x}");
    }
}

/// Bytes overwritten anywhere: an answer or an error, never a panic or a hang.
#[test]
fn damage_anywhere_is_survived() {
    let mut sql = format!(
        "PRAGMA page_size=512; {GPUS} {KERNELS} INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'A', 'u', 8, 16);
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value); INSERT INTO StringIds VALUES (1, 'x');"
    );
    for n in 0..200 {
        sql += &kernel_on(n + 1, n % 3, n * 10);
    }
    let (_folder, path) = export(&sql);
    let bytes = std::fs::read(&path).unwrap();
    let (mut answers, mut errors) = (0, 0);
    // A fixed sequence of places and bytes: any failure can be seen again.
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    for round in 0..400 {
        let mut bad = bytes.clone();
        for _ in 0..=round % 8 {
            let at = next(bad.len());
            bad[at] = u8::try_from(next(256)).unwrap();
        }
        std::fs::write(&path, &bad).unwrap();
        match read(&path, 0, &Want::all(), &Unwatched) {
            Ok(_) => answers += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(answers > 50 && errors > 50, "{answers} answers, {errors} errors");
}

#[test]
fn runs_of_threads_go_from_in_to_out() {
    let (a, b) = (global(11) | 11, global(11) | 12);
    // 11: in 10, out 20, in 30, in 40 (its end was lost), out 50; a leading end; 12: never ends.
    let sql = format!(
        "CREATE TABLE StringIds (id, value); CREATE TABLE SCHED_EVENTS (start, cpu, isSchedIn, globalTid);
        INSERT INTO SCHED_EVENTS VALUES (50, 2, 0, {a}), (5, 1, 0, {a}), (10, 1, 1, {a}), (20, 1, 0, {a}),
            (30, 3, 1, {a}), (40, 2, 1, {a}), (15, 0, 1, {b}), (60, 0, 'x', {b}), (70, 0, 1, NULL)"
    );
    let tables = load(&sql, &Want::all());
    assert_eq!(source(&tables, "thread_runs"), ("present".to_owned(), 9, false));
    let runs = table(&tables, "thread_runs");
    let rows: Vec<_> = (0..runs.rows())
        .map(|r| {
            let (tid, cpu) = (runs.u32("tid").unwrap().value(r), runs.u32("cpu").unwrap().value(r));
            (tid, runs.i64("start_ns").unwrap().value(r), runs.i64("end_ns").unwrap().value(r), cpu)
        })
        .collect();
    assert_eq!(rows, [(11, 10, 20, 1), (11, 40, 50, 2)]);
    assert_eq!(count(&tables, quality::BAD_INTERVAL), 2);
}

#[test]
fn times_that_no_clock_says_are_left_out_and_counted() {
    // A kernel of 10 ns; one that ends 292 years later; one of 2 years; one that starts before all time.
    let sql = format!(
        "{KERNELS} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, {0}), (30, 9223372036854775800, 0, {0}),
            (40, 63072000000000000, 0, {0}), (-9223372036854775808, 50, 0, {0})",
        global(11)
    );
    let tables = load(&sql, &Want::analysis());
    assert_eq!(table(&tables, "kernels").i64("start_ns").unwrap().values(), &[10]);
    assert_eq!(count(&tables, quality::BAD_INTERVAL), 3);
}

#[test]
fn a_column_that_is_called_otherwise_is_named() {
    let sql = "CREATE TABLE StringIds (id, value);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (started, end, deviceId, globalPid);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1), (30, 40, 0, 1);
        CREATE TABLE SCHED_EVENTS (start, cpu, isSchedIn, globalTid);
        INSERT INTO SCHED_EVENTS VALUES (10, 1, 1, NULL)";
    let tables = load(sql, &Want::all());
    assert_eq!(table(&tables, "kernels").rows(), 0);
    assert_eq!(count(&tables, quality::BAD_INTERVAL), 3);
    let quality = table(&tables, "quality");
    let detail = quality.text("detail").unwrap();
    let said: String = (0..quality.rows()).map(|r| detail.value(r)).collect::<Vec<_>>().join("|");
    assert!(said.contains("kernels: CUPTI_ACTIVITY_KIND_KERNEL has no column that is known to hold start_ns"));
    // Rows of a table that has moments instead of intervals miss nothing.
    assert!(!said.contains("SCHED_EVENTS has no column"));
}

#[test]
fn copies_of_more_bytes_than_there_are_count_none() {
    let a = global(11);
    let sql = format!(
        "CREATE TABLE StringIds (id, value);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, globalPid, bytes, copyKind);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
            (10, 20, 0, {a}, 4096, 1), (30, 40, 0, {a}, -1000, 1), (50, 60, 0, {a}, 9223372036854775807, 1)"
    );
    let tables = load(&sql, &Want::all());
    assert_eq!(table(&tables, "memops").i64("bytes").unwrap().values(), &[4096, 0, 0]);
    assert_eq!(count(&tables, quality::VALUE_OUT_OF_RANGE), 2);
}

#[test]
fn overhead_has_its_kind_where_the_export_names_it() {
    let thread = global(11) | 12;
    let sql = format!(
        "CREATE TABLE StringIds (id, value); CREATE TABLE ENUM_CUPTI_OVERHEAD_TYPE (id, name, label);
        INSERT INTO ENUM_CUPTI_OVERHEAD_TYPE VALUES (3, 'OVERHEAD_CUPTI_BUFFER_FLUSH', 'Buffer flush (Profiler)');
        CREATE TABLE PROFILER_OVERHEAD (start, end, globalTid, nameId, overheadType);
        INSERT INTO PROFILER_OVERHEAD VALUES (9, 12, {thread}, 1, 3), (2, 4, {thread}, 1, 77), (8, 7, {thread}, 1, 3)"
    );
    let tables = load(&sql, &Want::all());
    let rows = table(&tables, "profiler_overhead");
    let (kind, start) = (rows.names("kind").unwrap(), rows.i64("start_ns").unwrap());
    let found: Vec<_> = (0..rows.rows()).map(|r| (start.value(r), kind.get(r))).collect();
    assert_eq!(found, [(2, None), (9, Some("Buffer flush (Profiler)"))]);
    assert_eq!(rows.u32("tid").unwrap().value(0), 12);
    assert_eq!(count(&tables, quality::BAD_INTERVAL), 1);
    // Of an older export the kind is not known.
    let sql = "CREATE TABLE StringIds (id, value); CREATE TABLE PROFILER_OVERHEAD (start, end, globalTid, returnValue);
        INSERT INTO PROFILER_OVERHEAD VALUES (1, 2, 3, 0)";
    let tables = load(sql, &Want::parse(["profiler_overhead"]).unwrap());
    assert!(table(&tables, "profiler_overhead").names("kind").unwrap().get(0).is_none());
}

#[test]
fn cpu_samples_have_the_innermost_function() {
    let thread = global(11) | 12;
    let sql = format!(
        "CREATE TABLE StringIds (id, value);
        INSERT INTO StringIds VALUES (1, 'main'), (2, '/home/me/a.out'), (3, 'parse(char*)'), (4, '0x7f00');
        CREATE TABLE COMPOSITE_EVENTS (id, start, cpu, threadState, globalTid, cpuCycles);
        INSERT INTO COMPOSITE_EVENTS VALUES (9, 30, 0, 1, {thread}, 1), (7, 10, 0, 1, {thread}, 1),
            (8, 20, 0, 1, {thread}, 1), (6, NULL, 0, 1, {thread}, 1);
        CREATE TABLE SAMPLING_CALLCHAINS (id, symbol, module, unresolved, stackDepth);
        INSERT INTO SAMPLING_CALLCHAINS VALUES (7, 1, 2, NULL, 1), (7, 3, 2, NULL, 0), (8, 4, 2, 1, 0)"
    );
    let tables = load(&sql, &Want::all());
    let rows = table(&tables, "cpu_samples");
    let (function, module) = (rows.names("function").unwrap(), rows.names("module").unwrap());
    let time = rows.i64("time_ns").unwrap();
    let found: Vec<_> = (0..rows.rows()).map(|r| (time.value(r), function.get(r), module.get(r))).collect();
    let expected = [
        (10, Some("parse(char*)"), Some("a.out")),
        // An address is no name.
        (20, None, Some("a.out")),
        (30, None, None),
    ];
    assert_eq!(found, expected);
    assert_eq!((rows.u32("pid").unwrap().value(0), rows.u32("tid").unwrap().value(0)), (11, 12));
    assert_eq!(source(&tables, "cpu_samples"), ("present".to_owned(), 4, false));
    assert_eq!(source(&load(&sql, &Want::analysis()), "cpu_samples").0, "unread");
}

#[test]
fn calls_of_libraries_are_one_table() {
    let thread = global(11) | 12;
    let sql = format!(
        "CREATE TABLE StringIds (id, value);
        INSERT INTO StringIds VALUES (1, 'MPI_Send'), (2, 'cuvidMapVideoFrame64'), (3, 'poll'), (4, 'my token');
        CREATE TABLE MPI_P2P_EVENTS (start, end, globalTid, textId, tag);
        INSERT INTO MPI_P2P_EVENTS VALUES (30, 40, {thread}, 1, 5), (50, NULL, {thread}, 1, 5);
        CREATE TABLE NVVIDEO_DECODER_API (start, end, eventClass, globalTid, nameId);
        INSERT INTO NVVIDEO_DECODER_API VALUES (20, 25, 0, {thread}, 2), (5, 5, 0, 0, 4);
        CREATE TABLE OSRT_API (start, end, globalTid, nameId);
        INSERT INTO OSRT_API VALUES (10, 60, {thread}, 3), (11, 12, {thread}, 4)"
    );
    let tables = load(&sql, &Want::all());
    let rows = table(&tables, "host_calls");
    let (kind, name) = (rows.names("kind").unwrap(), rows.names("name").unwrap());
    let (start, end) = (rows.i64("start_ns").unwrap(), rows.i64("end_ns").unwrap());
    let found: Vec<_> =
        (0..rows.rows()).map(|r| (kind.get(r).unwrap(), name.get(r), start.value(r), end.value(r))).collect();
    let expected = [
        ("os", Some("poll"), 10, 60),
        // No function is called so.
        ("os", None, 11, 12),
        ("video", Some("cuvidMapVideoFrame64"), 20, 25),
        ("mpi", Some("MPI_Send"), 30, 40),
    ];
    assert_eq!(found, expected);
    assert_eq!((rows.u32("pid").unwrap().value(0), rows.u32("tid").unwrap().value(0)), (11, 12));
    assert_eq!(source(&tables, "host_calls"), ("present".to_owned(), 6, false));
    // They are not read unless somebody asks, and nothing is said where there are none.
    assert_eq!(source(&load(&sql, &Want::analysis()), "host_calls").0, "unread");
    let none = load("CREATE TABLE StringIds (id, value)", &Want::all());
    let sources = table(&none, "sources");
    let names = sources.names("source").unwrap();
    assert!((0..sources.rows()).all(|r| !["host_calls", "cpu_samples"].contains(&names.get(r).unwrap())));
}
