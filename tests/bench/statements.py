"""What a folder of captures is told: how each device was shared, on which condition, and what limits its work.

``python tests/bench/statements.py FOLDER`` prints a line for each device with work, then how many verdicts are
unconditional, conditional and undetermined, and for how many captures the first screen names neither a limit nor a cause.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import pyanalyze
from pyanalyze.errors import PyanalyzeError
from pyanalyze.report.summary import render_summary
from pyanalyze.vocabulary import Mode

#: Labels of the first screen that say what limits the work, or whether sharing does.
STATEMENTS = ("Limit", "Answer", "Tenants", "Slow")


def statement(screen: str) -> str:
    """The first line that says what limits the work, with those that continue it."""
    lines = screen.splitlines()
    begins = next((n for n, line in enumerate(lines) if line.startswith(STATEMENTS)), None)
    if begins is None:
        return ""
    rest = iter(lines[begins + 1 :])
    found = [lines[begins]]
    while (line := next(rest, "x")).startswith("   "):
        found.append(line)
    return " ".join(" ".join(found).split())


def main() -> None:
    """Print the table and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    counts: Counter[str] = Counter()
    silent = []
    folder = parser.parse_args().folder
    for path in sorted(folder.rglob("*.sqlite")):
        name = str(path.relative_to(folder))
        try:
            report = pyanalyze.load(path).report()
        except PyanalyzeError as error:
            print(f"{name}: {error}")
            counts["captures that are refused"] += 1
            continue
        said = statement(render_summary(report))
        if not said:
            silent.append(name)
        for device in report.devices:
            if not any(tenant.busy_ns for tenant in device.tenants):
                continue
            sharing = device.sharing
            kind = (
                "undetermined"
                if sharing.mode is Mode.UNDETERMINED
                else "conditional"
                if sharing.condition
                else "unconditional"
            )
            counts[kind] += 1
            print(
                f"{name} device {device.device_id}: {sharing.mode} {sharing.confidence:.2f} {sharing.condition or '-'}; {said}"
            )
    for kind, count in sorted(counts.items()):
        print(f"{kind}: {count}")
    print(f"captures without a statement: {len(silent)} {' '.join(silent)}")


if __name__ == "__main__":
    main()
