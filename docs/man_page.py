"""The man page, from what `--help` says: one source for both."""

from __future__ import annotations

import importlib
import inspect
import re

import click

from pyanalyze.cli import EPILOG, VERBS, cli
from pyanalyze.cli.examples import EXAMPLES


def _escaped(text: str) -> str:
    """Text for troff: its escapes are ours, and no line begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _options(command: click.Command) -> list[str]:
    context = click.Context(command, info_name=command.name)
    out = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            names, text = record
            out += [".TP", f"\\fB{_escaped(names)}\\fR", _escaped(" ".join(text.split()))]
    return out


def man_page() -> str:
    """`pyanalyze(1)`."""
    from pyanalyze import __version__

    out = [f'.TH PYANALYZE 1 "" "pyanalyze {__version__}" "User commands"', ".SH NAME"]
    out += [_escaped("pyanalyze - tell how GPUs were really shared, from Nsight Systems captures"), ".SH SYNOPSIS"]
    out += [".B pyanalyze", _escaped("[VERB] [OPTIONS] CAPTURE..."), ".SH DESCRIPTION"]
    for paragraph in inspect.cleandoc(cli.help or "").split("\n\n"):
        out += [_escaped(" ".join(paragraph.split())), ".PP"]
    out.append(".SH VERBS")
    for verb, (module, line) in VERBS.items():
        command: click.Command = importlib.import_module(module).command
        out += [f".SS pyanalyze {verb}", _escaped(line), ".PP"]
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            kept = paragraph.removeprefix("\b\n")
            if kept != paragraph:  # as it stands, line by line
                out += [".nf", *map(_escaped, kept.splitlines()), ".fi", ".PP"]
            else:
                out += [_escaped(" ".join(paragraph.split())), ".PP"]
        out += _options(command)
        out += [".PP", "Examples:", ".nf", *map(_escaped, EXAMPLES[verb]), ".fi"]
    out += [".SH EXIT STATUS", _escaped(EPILOG.removeprefix("Exit codes: ")), ".SH SEE ALSO"]
    out.append(_escaped("nsys, nvidia-smi, and the pages in docs/ of the source"))
    return "\n".join(out) + "\n"
