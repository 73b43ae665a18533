"""What does the MPS control daemon say of itself, its servers and their caps? Asks only; changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Any

from pyanalyze.text.numbers import MOST_PID, bounded_float, bounded_int
from pyanalyze.vocabulary import MPS_CONTROL


def control_answers(patience_s: float = 0.8) -> dict[str, Any] | None:
    """Ask the control daemon that this user reaches; None where there is no control program.

    Parameters
    ----------
    patience_s
        How long all questions together may take: the daemon answers one after the other, and a stuck one never.

    Returns
    -------
    dict or None
        `default_active_thread_percentage`, `servers` (`pid`, `active_thread_percentage`, `clients`); each None with
        its reason in `unread` where it was not answered.

    Examples
    --------
    >>> control_answers()  # doctest: +SKIP
    {'default_active_thread_percentage': 100.0, 'servers': [{'pid': 4100, ...}], 'unread': {}}
    """
    # Without an option it only talks to a daemon; it starts one with -d or -f alone.
    program = shutil.which(MPS_CONTROL)
    if program is None:
        return None
    until = time.monotonic() + patience_s
    found: dict[str, Any] = {"default_active_thread_percentage": None, "servers": None, "unread": {}}

    def ask(question: str) -> str | None:
        try:
            answer = subprocess.run(  # noqa: S603
                [program],
                input=question + "\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=max(0.05, until - time.monotonic()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            found["unread"][question] = "no answer in time"
            return None
        except OSError as error:
            found["unread"][question] = error.strerror or str(error)
            return None
        if answer.returncode:
            found["unread"][question] = (answer.stdout + answer.stderr).strip()[:200] or f"status {answer.returncode}"
            return None
        return answer.stdout

    def number(question: str) -> float | None:
        text = ask(question)
        percentage = bounded_float((text.split() or [""])[-1], 0, 100) if text is not None else None
        if text is not None and percentage is None:
            found["unread"][question] = "not a percentage"
        return percentage

    listed = ask("get_server_list")
    if listed is None:
        return found  # no daemon: every other question would say the same
    found["default_active_thread_percentage"] = number("get_default_active_thread_percentage")
    found["servers"] = []
    for pid in _pids(listed):
        clients = ask(f"get_client_list {pid}")
        server = {
            "pid": pid,
            "active_thread_percentage": number(f"get_active_thread_percentage {pid}"),
            "clients": None if clients is None else _pids(clients),
        }
        found["servers"].append(server)
    return found


def _pids(text: str) -> list[int]:
    found = (bounded_int(word, 1, MOST_PID) for word in text.split())
    return [pid for pid in found if pid is not None]
