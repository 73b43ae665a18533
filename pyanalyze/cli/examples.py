"""Two examples of every verb, for its help. The tests give them to the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXAMPLES"]

#: verb -> two calls of it.
EXAMPLES: Final[Mapping[str, tuple[str, str]]] = {
    "summary": (
        "pyanalyze run.sqlite",
        "pyanalyze run.sqlite --samples smi.csv --baseline web=web_solo.sqlite",
    ),
    "info": ("pyanalyze info run.sqlite", "pyanalyze info captures/ -f json"),
    "kernels": ("pyanalyze kernels run.sqlite", "pyanalyze kernels run.sqlite -o kernels.csv"),
    "classify": ("pyanalyze classify run.sqlite", "pyanalyze classify run.sqlite --expect-mode 'mps*'"),
    "residency": ("pyanalyze residency run.sqlite", "pyanalyze residency run.sqlite --around 12s/500ms"),
    "occupancy": ("pyanalyze occupancy run.sqlite", "pyanalyze occupancy run.sqlite --gpu 0 -f csv"),
    "streams": ("pyanalyze streams run.sqlite", "pyanalyze streams run.sqlite -f json"),
    "interference": (
        "pyanalyze interference run.sqlite --baseline web=web_solo.sqlite",
        "pyanalyze interference run.sqlite --work requests.csv -f csv",
    ),
    "advise": ("pyanalyze advise run.sqlite", "pyanalyze advise run.sqlite --require fault-isolation --latency 5"),
    "explain": ("pyanalyze explain run.sqlite", "pyanalyze explain run.sqlite --name request --slowest 5"),
    "compare": ("pyanalyze compare before.sqlite after.sqlite", "pyanalyze compare before/ after/ -o change.html"),
    "check": (
        "pyanalyze check run.sqlite --expect-mode mps --max-slowdown 1.2",
        "pyanalyze check run.sqlite --max-change 5% --against before.json --junit gate.xml",
    ),
    "report": ("pyanalyze report run.sqlite -o report.html", "pyanalyze report run.sqlite --redact -f md -o ticket.md"),
    "fleet": ("pyanalyze fleet captures/ -o fleet/", "pyanalyze fleet 'runs/**/*.sqlite' -o fleet/ --workers 8"),
    "study": ("pyanalyze study study.toml -o study/", "pyanalyze study study.toml -o study/ --workers 4"),
    "now": ("pyanalyze now", "pyanalyze now -f json"),
    "record": ("pyanalyze record -o recording -- python train.py", "pyanalyze record --duration 60"),
    "doctor": ("pyanalyze doctor", "pyanalyze doctor -f json"),
    "export": (
        "pyanalyze export run.sqlite --to perfetto -o run.pftrace",
        "pyanalyze export run.sqlite --to parquet -o tables/ --tables kernels,residency",
    ),
    "pack": (
        "pyanalyze pack run.sqlite -o run.pack --key names.key",
        "pyanalyze pack run.sqlite -o run.pack --key names.key --names names.csv",
    ),
    "schema": ("pyanalyze schema", "pyanalyze schema classify"),
    "completion": (
        "pyanalyze completion bash > ~/.local/share/bash-completion/completions/pyanalyze",
        "pyanalyze completion zsh > _pyanalyze",
    ),
}
