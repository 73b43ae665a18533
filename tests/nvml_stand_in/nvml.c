/* A stand-in for libnvidia-ml.so.1: what NVML would answer on machines that tests do not have.
 *
 * NVML_STAND_IN: `a100-mig` (two instances, a process in each, no utilisation), `h100-mig` (the same with GPM; with
 * NVML_STAND_IN_SHARED both are compute instances of one GPU instance), `h100-mps` (two MPS clients and their server),
 * `vgpu-guest` (one process, no power, no scheduler), `vgpu-host`, `h100-cc` (confidential computing), `lost` (an H100
 * that falls off the bus when the file named by NVML_STAND_IN_LOST appears), `stuck` (an H100 whose driver does not come
 * back from then on), `busy` (as many processes as NVML_STAND_IN_PROCESSES says), `none` (driver not loaded).
 * Layouts and error numbers are those of nvml.h, for the calls that the recorder makes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct dev { int kind; int number; } *device;
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, LOST = 15 };

static struct dev board = {0, 0}, instance[2] = {{1, 0}, {1, 1}};

static int is(const char *name) {
  const char *machine = getenv("NVML_STAND_IN");
  return machine && strcmp(machine, name) == 0;
}
static int mig(void) { return is("a100-mig") || is("h100-mig"); }
static int gone(void) {
  const char *file = getenv("NVML_STAND_IN_LOST");
  const int there = file && access(file, F_OK) == 0;
  if (is("stuck") && there) pause();
  return is("lost") && there;
}
#define ALIVE if (gone()) return LOST
static int put(char *out, u32 size, const char *text) {
  snprintf(out, size, "%s", text);
  return OK;
}

int nvmlInitWithFlags(u32 flags) { (void)flags; return is("none") ? DRIVER_NOT_LOADED : OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *out, u32 size) { return put(out, size, "570.86.15"); }
int nvmlSystemGetProcessName(u32 pid, char *out, u32 size) {
  if (pid == 4100) return put(out, size, "/usr/bin/nvidia-cuda-mps-server");
  if (pid == 4101) return put(out, size, "/opt/train --password=hunter2");
  if (pid == 4102) return put(out, size, "/opt/serve");
  return NOT_FOUND;
}
int nvmlDeviceGetCount_v2(u32 *n) { *n = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, device *d) { if (i) return NOT_FOUND; *d = &board; return OK; }
int nvmlDeviceGetUUID(device d, char *out, u32 size) {
  if (d->kind) return put(out, size, d->number ? "MIG-b" : "MIG-a");
  return put(out, size, is("a100-mig") ? "GPU-a100" : "GPU-h100");
}
int nvmlDeviceGetName(device d, char *out, u32 size) {
  if (d->kind) return put(out, size, d->number ? "NVIDIA A100 MIG 4g.20gb" : "NVIDIA A100 MIG 3g.20gb");
  if (is("vgpu-guest")) return put(out, size, "GRID T4-4Q");
  return put(out, size, is("a100-mig") ? "NVIDIA A100" : "NVIDIA H100");
}
int nvmlDeviceGetUtilizationRates(device d, u32 *rates) {
  (void)d;
  ALIVE;
  if (mig()) return NOT_SUPPORTED;
  rates[0] = 97; rates[1] = 41;
  return OK;
}
typedef struct { u32 version; u64 total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(device d, memory2 *m) {
  ALIVE;
  m->total = d->kind ? 20ull << 30 : 80ull << 30;
  m->used = d->kind ? (d->number + 1ull) << 30 : 10ull << 30;
  m->reserved = 1ull << 29;
  m->free = m->total - m->used - m->reserved;
  return OK;
}
int nvmlDeviceGetPowerUsage(device d, u32 *mw) {
  (void)d;
  ALIVE;
  if (is("vgpu-guest")) return NOT_SUPPORTED;
  *mw = 250100;
  return OK;
}
int nvmlDeviceGetTemperature(device d, u32 sensor, u32 *c) { (void)d; (void)sensor; ALIVE; *c = 61; return OK; }
int nvmlDeviceGetPerformanceState(device d, u32 *p) { (void)d; ALIVE; *p = 0; return OK; }
int nvmlDeviceGetClockInfo(device d, u32 type, u32 *mhz) { (void)d; ALIVE; *mhz = 1400 + type; return OK; }
/* Only the name before R535 is there. */
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, u64 *bits) { (void)d; ALIVE; *bits = 0x4; return OK; }
int nvmlDeviceGetComputeMode(device d, u32 *mode) { (void)d; ALIVE; *mode = is("h100-mps") ? 3 : 0; return OK; }
int nvmlDeviceGetMigMode(device d, u32 *now, u32 *then) {
  (void)d;
  ALIVE;
  *now = *then = mig();
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device d, u32 *n) { (void)d; *n = mig() ? 7 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, u32 i, device *out) {
  (void)d;
  if (!mig() || (i != 0 && i != 2)) return NOT_FOUND; /* a hole, as after an instance was destroyed */
  *out = &instance[i == 2];
  return OK;
}
static int shared(void) { return getenv("NVML_STAND_IN_SHARED") != 0; }
int nvmlDeviceGetGpuInstanceId(device d, u32 *id) { *id = d->number && !shared() ? 2 : 1; return OK; }
int nvmlDeviceGetComputeInstanceId(device d, u32 *id) { *id = shared() ? d->number : 0; return OK; }
typedef struct { u32 sms, ce, dec, enc, jpeg, ofa, gi, ci; u64 mb; } attributes;
int nvmlDeviceGetAttributes_v2(device d, attributes *a) {
  memset(a, 0, sizeof *a);
  a->sms = d->number ? 56 : 42;
  a->gi = a->ci = d->number ? 4 : 3;
  return OK;
}
typedef struct { u32 pid; u64 memory; u32 gi, ci; } process;
static u32 crowd(void) {
  const char *text = getenv("NVML_STAND_IN_PROCESSES");
  const int count = text ? atoi(text) : 1;
  return count < 0 ? 0 : count > 4096 ? 4096 : count;
}
static int list(u32 *n, process *out, const process *from, u32 count) {
  if (!count) { *n = 0; return OK; }
  if (!out || *n < count) { *n = count; return INSUFFICIENT_SIZE; }
  memcpy(out, from, count * sizeof *from);
  *n = count;
  return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device d, u32 *n, process *out) {
  (void)d;
  ALIVE;
  static const process inside[] = {{4101, 512ull << 20, 1, 0}, {4102, ~0ull, 2, 0}};
  static const process server[] = {{4100, 25ull << 20, ~0u, ~0u}};
  static const process one[] = {{4102, 3ull << 30, ~0u, ~0u}};
  if (mig()) return list(n, out, inside, 2);
  if (is("busy")) {
    static process many[4096];
    const u32 count = crowd();
    for (u32 i = 0; i < count; i++) many[i] = (process){100000 + i, 1ull << 28, ~0u, ~0u};
    return list(n, out, many, count);
  }
  return is("h100-mps") ? list(n, out, server, 1) : list(n, out, one, 1);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, u32 *n, process *out) { (void)d; return list(n, out, 0, 0); }
/* An older driver: only the second form. */
int nvmlDeviceGetMPSComputeRunningProcesses_v2(device d, u32 *n, process *out) {
  (void)d;
  static const process clients[] = {{4101, 4ull << 30, ~0u, ~0u}, {4102, 2ull << 30, ~0u, ~0u}};
  return list(n, out, clients, is("h100-mps") ? 2 : 0);
}
typedef struct { u32 pid; u64 time; u32 sm, mem, enc, dec; } share;
int nvmlDeviceGetProcessUtilization(device d, share *out, u32 *n, u64 since) {
  (void)d;
  if (is("busy")) {
    const u32 count = crowd();
    if (!out || *n < count) { *n = count; return INSUFFICIENT_SIZE; }
    for (u32 i = 0; i < count; i++) out[i] = (share){100000 + i, since + 1, 1, 1, 0, 0};
    *n = count;
    return OK;
  }
  if (!is("h100-mps")) return NOT_SUPPORTED;
  if (!out || *n < 2) { *n = 2; return INSUFFICIENT_SIZE; }
  /* Two samples of one process, the newest first; none of the other. */
  out[0] = (share){4101, since + 2, 33, 7, 0, 0};
  out[1] = (share){4101, since + 1, 99, 9, 0, 0};
  *n = 2;
  return OK;
}

int nvmlDeviceGetVirtualizationMode(device d, u32 *mode) {
  (void)d;
  ALIVE;
  *mode = is("vgpu-guest") ? 2 : is("vgpu-host") ? 3 : 0;
  return OK;
}
/* Adaptive round robin: the parameters are then an averaging factor and the slice in ns. */
int nvmlDeviceGetVgpuSchedulerState(device d, u32 *state) {
  (void)d;
  if (!is("vgpu-host")) return NOT_SUPPORTED;
  state[0] = 2; state[1] = 2; state[2] = 33; state[3] = 2000000;
  return OK;
}
int nvmlSystemGetConfComputeState(u32 *state) { state[0] = 0; state[1] = is("h100-cc"); state[2] = 0; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }

/* GPM, as on Hopper: what lies between two samples. Between the n-th and the n+1-th of the GPU or of an instance, SMs
 * were active 10 n %, and as much again for each GPU instance number; PCIe receive is refused, tensor is no number. */
typedef struct { int taken, gi; } *gpm;
static int taken[8];
int nvmlGpmQueryDeviceSupport(device d, u32 *support) {
  (void)d;
  support[1] = is("h100-mps") || is("h100-mig");
  return OK;
}
int nvmlGpmSampleAlloc(gpm *sample) { *sample = calloc(1, sizeof **sample); return OK; }
int nvmlGpmSampleFree(gpm sample) { free(sample); return OK; }
int nvmlGpmSampleGet(device d, gpm sample) {
  (void)d;
  if (mig()) return NOT_SUPPORTED;
  sample->taken = ++taken[0];
  sample->gi = 0;
  return OK;
}
int nvmlGpmMigSampleGet(device d, u32 gi, gpm sample) {
  (void)d;
  sample->taken = ++taken[gi];
  sample->gi = gi;
  return OK;
}
typedef struct { u32 id, result; double value; const char *text[3]; } metric;
typedef struct { u32 version, count; gpm first, second; metric metrics[]; } question;
int nvmlGpmMetricsGet(question *q) {
  if (q->version != 1 || q->second->taken != q->first->taken + 1 || q->second->gi != q->first->gi) return 2;
  for (u32 i = 0; i < q->count; i++) {
    metric *m = &q->metrics[i];
    m->result = m->id == 21 ? NOT_SUPPORTED : OK;
    m->value = m->id == 5 ? NAN : m->id == 20 ? 3 : 10.0 * q->first->taken + 10.0 * q->first->gi;
  }
  return OK;
}
