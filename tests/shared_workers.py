"""Worker processes that all fleets of a process that runs tests share: to start one takes longer than most of what it does."""

from __future__ import annotations

from typing import Self

from pyanalyze.fleet.executors import Processes, Share


class KeptWorkers(Processes):
    """Two workers that outlive a run."""

    def __init__(self) -> None:
        super().__init__(2, Share(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        """End them; when nobody runs a fleet any more."""
        self._close(now=False)
