"""Draws the static pictures of charts in a process beside this one, while the next chart is made.

The engine that draws starts for a second, and keeps the interpreter to itself while it works. Beside, on a second
processor, neither is waited for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from pyanalyze.text.chart_text import whole_characters

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

__all__ = ["Painter", "svg"]

#: The child finds the package where its parent's interpreter does, and nothing in the folder it was called in.
_CHILD = (sys.executable, "-P", "-c", "from pyanalyze.report.static_charts import _serve; _serve()")


def svg(chart: str, config: str) -> str:
    """Draw a chart.

    Parameters
    ----------
    chart, config
        A Vega-Lite specification with its data, and a configuration, as JSON.

    Returns
    -------
    str
        The picture. Nothing is loaded from anywhere.

    Examples
    --------
    >>> svg('{"mark": "point", "data": {"values": []}}', "{}")[:4]
    '<svg'
    """
    import vl_convert

    def draw(spec: Any) -> str:
        # Data is inline, so an address in it could only come from a bug.
        return vl_convert.vegalite_to_svg(spec, config=json.loads(config), allowed_base_urls=[], show_warnings=False)

    return whole_characters(draw, json.loads(chart))


class Painter:
    """Draws pictures in the order asked for; a context manager.

    Its process starts at once, so that it is ready when the first chart is. On one processor, and where it cannot start
    or is killed, pictures are drawn here.

    Examples
    --------
    >>> with Painter() as painter:
    ...     painter.svg('{"mark": "point", "data": {"values": []}}', "{}").result()[:4]
    '<svg'
    """

    def __init__(self) -> None:
        self._waiting = ThreadPoolExecutor(1)
        self._process = _started()

    def svg(self, chart: str, config: str) -> Future[str]:
        """Draw a chart beside; for the arguments see :func:`svg`."""
        return self._waiting.submit(self._drawn, chart, config)

    def _drawn(self, chart: str, config: str) -> str:
        return self._answer(f"[{chart},{config}]\n".encode()) or svg(chart, config)

    def _answer(self, request: bytes) -> str:
        """What the process says; nothing if there is none any more, or if it failed, as drawing here will too."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return ""
        try:
            process.stdin.write(request)
            process.stdin.flush()
            return str(json.loads(process.stdout.readline()))
        except (OSError, ValueError):
            self._end()
            return ""

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # What was not taken any more stands in the buffer of its input, and cannot be written now.
            with suppress(BrokenPipeError), process:
                process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
        try:
            self._waiting.shutdown(cancel_futures=True)
        finally:  # an interrupt may come while this waits
            self._end()


def _started() -> subprocess.Popen[bytes] | None:
    """The process that draws; none on one processor, or where none may be started: pictures are as right without."""
    if len(os.sched_getaffinity(0)) == 1 or not sys.executable:
        return None
    try:
        return subprocess.Popen(  # noqa: S603 our own interpreter
            _CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None


def _serve() -> None:
    """Answer each line on standard input, a chart and a configuration, with a line: its picture as a JSON string."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks was interrupted too, and closes the pipe
    svg('{"mark":"point","data":{"values":[]}}', "{}")  # starts the engine before there is anything to draw
    for line in sys.stdin.buffer:
        chart, config = json.loads(line)
        sys.stdout.write(json.dumps(svg(json.dumps(chart), json.dumps(config))) + "\n")
        sys.stdout.flush()
