"""Answers of `nvidia-cuda-mps-control`, with the commands they answer.

Most answers are bare numbers, so the command must stand before them, as in a pasted terminal:
``echo get_client_list 51 | nvidia-cuda-mps-control``. Tables (`ps`, `device_query`, `lspart`) are known by their
heading.

Keys: `mps_daemon` (it answered; its pid is not said), `mps_server` (pid: a server), `mps_client` (pid: a client; from
`ps` with `server=`, `uuid=` (the first part), `namespace_pid=`, `name=`), `mps_device` (`device=0 uuid=... name=...`),
`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` (pid: the server, where the command named one), `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`
(`0=4G`), `CUDA_MPS_CLIENT_PRIORITY`, `mps_partition` (one row of `lspart`, columns as they are called). Of a
client's command line only the program is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyanalyze.inputs.context.base import Reader, Row, once, program, real_pid
from pyanalyze.text.pairs import pairs
from pyanalyze.vocabulary import MPS_CONTROL, MPS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTS = {"get_server_list": "mps_server", "get_client_list": "mps_client", "get_device_client_list": "mps_client"}
_PERCENTAGES = ("get_default_active_thread_percentage", "get_active_thread_percentage")
_LIMITS = ("get_default_device_pinned_mem_limit", "get_device_pinned_mem_limit")
_COMMANDS = (*_LISTS, *_PERCENTAGES, *_LIMITS, "get_default_client_priority", "device_query", "lspart", "ps")
#: A command and its arguments: piped to the control program, or on a line of its own in its shell.
_COMMAND = re.compile(
    rf"(?:\becho\s+[\"']?|^\s*(?:[$#>]\s*)?)(?P<command>{'|'.join(_COMMANDS)})(?P<words>(?:[ \t]+[\w:.-]+)*)[\"']?"
    r"\s*(?P<pipe>\|\s*(?:sudo\s+)?nvidia-cuda-mps-control\b.*)?$"
)
_PS = re.compile(r"^\s*PID\s+ID\s+SERVER\s+DEVICE\s+NAMESPACE\s+COMMAND\b")
_DEVICES = re.compile(r"^\s*Device Ordinal\b.*\bUUID\b", re.IGNORECASE)
#: Two blanks and no more: of thousands, every number of them would be tried.
_PARTITIONS = re.compile(r"^\s*GPU\s{2}.*\bPartition\b", re.IGNORECASE)
_DEVICE = re.compile(r"^\s*(?P<device>\d+)\s+(?:\S+\s+)?(?P<uuid>(?:GPU|MIG)-[0-9A-Fa-f-]+)(?P<rest>.*)$")
_CLIENT = re.compile(
    r"^\s*(?P<pid>\d+)\s+(?P<id>\d+)\s+(?P<server>\d+)\s+(?P<device>\S+)\s+(?P<namespace>\S+)\s+(?P<command>\S.*)$"
)
_LIMIT = re.compile(r"^\s*(\d+(?:\.\d+)?\s*[KMGT]?i?B?)\s*$")


def _command(line: str) -> re.Match[str] | None:
    # Searching goes through the whole line; only `echo` stands elsewhere than at its start.
    found = _COMMAND.search(line) if "echo" in line else _COMMAND.match(line)
    # `ps` alone is also a command of the shell.
    return None if found is not None and found["command"] == "ps" and found["pipe"] is None else found


def _is_table(line: str) -> bool:
    return any(heading.match(line) for heading in (_PS, _DEVICES, _PARTITIONS))


def _sniff(text: str) -> bool:
    return any(_command(line) or _is_table(line) for line in text.splitlines())


def _read(text: str) -> list[Row]:
    return once(_rows(text))


def _rows(text: str) -> Iterator[Row]:
    command, words = "", ()
    columns: list[str] = []
    for line in text.splitlines():
        if found := _command(line):
            command, words, columns = found["command"], tuple(found["words"].split()), []
            continue
        if not line.strip():
            continue
        if _PS.match(line):
            command = "ps"
        elif _DEVICES.match(line):
            command = "device_query"
        elif _PARTITIONS.match(line):
            command = "lspart"
            columns = [re.sub(r"\W+", "_", name).lower() for name in _cells(line)]
        elif rows := list(_answer(command, words, columns, line)):
            yield Row("mps_daemon", MPS_CONTROL)
            yield from rows
        else:
            # An error message or the next prompt: what follows answers nothing.
            command = ""


def _cells(line: str) -> list[str]:
    return re.split(r"\s{2,}|\t", line.strip())


def _answer(command: str, words: tuple[str, ...], columns: list[str], line: str) -> Iterator[Row]:
    text = line.strip()
    if command in _LISTS and re.fullmatch(r"\d+", text):
        value = MPS_SERVER if command == "get_server_list" else "connected"
        yield Row(_LISTS[command], value, real_pid(text))
    elif command == "get_device_client_list" and (found := _DEVICE.match(line)):
        yield Row("mps_device", pairs(device=found["device"], uuid=found["uuid"]))
    elif command in _PERCENTAGES and (number := re.fullmatch(r"(\d{1,3}(?:\.\d+)?)", text)):
        server = real_pid(words[0]) if words and words[0].isdecimal() else None
        yield Row("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", f"{float(number[1]):g}", server)
    elif command in _LIMITS and (limit := _LIMIT.match(line)):
        # The device is the last argument.
        device = words[-1] if words and words[-1].isdecimal() else "0"
        yield Row("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"{device}={limit[1].replace(' ', '')}")
    elif command == "get_default_client_priority" and re.fullmatch(r"\d", text):
        yield Row("CUDA_MPS_CLIENT_PRIORITY", text)
    elif command == "device_query" and (found := _DEVICE.match(line)):
        name = _cells(found["rest"])[0] or None
        yield Row("mps_device", pairs(device=found["device"], uuid=found["uuid"], name=name))
    elif command == "lspart" and len(cells := _cells(line)) == len(columns):
        fields = {name: re.sub(r"\s+", "_", cell) for name, cell in zip(columns, cells, strict=True)}
        fields["uuid"] = fields.pop("gpu", "")
        yield Row("mps_partition", pairs(**fields))
    elif command == "ps" and (found := _CLIENT.match(line)):
        value = pairs(
            server=found["server"],
            uuid=found["device"],
            namespace_pid=found["namespace"],
            name=program(found["command"]),
        )
        yield Row("mps_client", value, real_pid(found["pid"]))


READER = Reader("mps-control", "answers of `nvidia-cuda-mps-control` with their commands", _sniff, _read)
