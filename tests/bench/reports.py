"""How long does a report of a large capture take, how much memory; how fast and small is a Perfetto trace?

Each run is a process of its own: its peak memory is that of the whole command.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import big_export
import measurements

from pyanalyze.core import _core

ROOT = Path(__file__).parent.parent.parent


def measured(arguments: list[str]) -> tuple[float, float, int]:
    """Seconds by the clock and of all processors, and peak bytes, of one `pyanalyze` command."""
    command = [sys.executable, "-c", "from pyanalyze.cli import main; main()", *arguments]
    began = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> int:
    """Print one line for each kind of output, and append them to the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--calls", type=int, default=0, help="API calls beside them")
    kinds = ("html", "json", "pack", "perfetto", "writer")
    parser.add_argument("--outputs", nargs="+", choices=kinds, default=kinds, help="only these")
    options = parser.parse_args()
    capture = big_export.export(options.kernels, options.calls)
    common = {
        "bench": "reports",
        "kernels": options.kernels,
        "calls": options.calls,
        "version": _core.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
    }
    print(f"{'output':>9} {'seconds':>8} {'cpu s':>6} {'peak MiB':>9} {'MB written':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in (kind for kind in options.outputs if kind != "writer"):
            out = Path(folder) / f"out.{kind}"
            arguments = {
                "html": ["report", str(capture), "-o", str(out)],
                "json": ["report", str(capture), "-f", "json", "-o", str(out)],
                "pack": ["pack", str(capture), "-o", str(out), "--key", str(Path(folder) / "key")],
                "perfetto": ["export", str(capture), "--to", "perfetto", "-o", str(out)],
            }[kind]
            seconds, cpu, peak = measured(arguments)
            size = out.stat().st_size
            print(f"{kind:>9} {seconds:>8.1f} {cpu:>6.1f} {peak / 2**20:>9.0f} {size / 1e6:>11.2f}")
            figures = {"seconds": round(seconds, 2), "cpu_s": round(cpu, 2), "peak_bytes": peak, "size_bytes": size}
            row = {**common, "output": kind, **figures}
            measurements.append(row)
            out.unlink()
        if "writer" in options.outputs:
            measurements.append({**common, **perfetto(capture, Path(folder) / "trace")})
    return 0


def perfetto(capture: Path, out: Path) -> dict[str, object]:
    """The writer alone, on one processor: events a second and bytes an event."""
    import pyanalyze

    session = pyanalyze.load(capture)
    tables = {name: session.table(name) for name in session.tables}
    # On one processor: the time of the processor is that of the clock, less what others took of it.
    began = time.process_time()
    events = _core.write_perfetto(tables, str(out), None)
    seconds = time.process_time() - began
    size = out.stat().st_size
    out.unlink()
    print(f"Perfetto writer: {events:,} events, {events / seconds / 1e6:.2f} M/s, {size / events:.1f} bytes each")
    return {
        "output": "perfetto writer",
        "events": events,
        "cpu_s": round(seconds, 2),
        "events_per_s": round(events / seconds),
        "bytes_per_event": round(size / events, 1),
        "size_bytes": size,
    }


if __name__ == "__main__":
    sys.exit(main())
