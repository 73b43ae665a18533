"""Who does the work: processes of this machine, or the workers of a Dask cluster.

Both are told functions and arguments and give back results as they end; both survive the death of a worker. Workers
write no files, so that one that is killed half-way leaves nothing behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from pyanalyze.exceptions import UsageError
from pyanalyze.memory import LEAST_BYTES, VARIABLE, budget

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from distributed import Client

#: The word for a Dask cluster that is started here, for this run.
LOCAL = "local"


class WorkerDied(RuntimeError):
    """The process that worked on a capture ended abnormally, whenever it was tried; a result, never raised."""


@dataclass(frozen=True)
class Share:
    """What one worker may use: processors, and bytes of resident memory."""

    threads: int
    memory_bytes: int = LEAST_BYTES

    def take(self, number: int) -> None:
        """Keep this process, the worker of that number, to it; before anything in it counts processors."""
        os.environ[VARIABLE] = str(self.memory_bytes)
        at_hand = sorted(os.sched_getaffinity(0))
        if self.threads < len(at_hand):
            # The readers in Rust count the processors that they may run on.
            first = number * self.threads
            os.sched_setaffinity(0, {at_hand[(first + step) % len(at_hand)] for step in range(self.threads)})


class Crew(Protocol):
    """What does work; a context manager."""

    def __enter__(self) -> Self:
        """Get ready."""
        ...

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop; at once when an exception ends the block."""
        ...

    def outcomes(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield the index of every task with its result or its exception, in the order in which they end."""
        ...


def hire(
    scheduler: str | None, workers: int | None, *, threads: int | None = None, memory: str | int | None = None
) -> Crew:
    """Choose who works.

    Parameters
    ----------
    scheduler
        None: processes of this machine. ``local``: a Dask cluster of this machine, started for this run. Else the
        address of a Dask scheduler (``tcp://host:8786``), or the JSON file that a scheduler wrote.
    workers
        How many at once; None: the processors at hand. An existing cluster has its own number.
    threads, memory
        Of all workers together; each gets its part. None: all at hand (:func:`pyanalyze.memory.budget`). The workers of
        an existing cluster have what its operator gave them (`dask worker --memory-limit`).

    Raises
    ------
    pyanalyze.exceptions.UsageError
        No workers, too little memory for so many, or workers for a cluster that has its own.

    Examples
    --------
    >>> with hire(None, 1) as crew:
    ...     list(crew.outcomes(abs, [(-1,), (-2,)]))
    [(0, 1), (1, 2)]
    """
    if workers is not None and workers < 1:
        raise UsageError(f"{workers} workers cannot do any work; give 1 or more")
    if scheduler not in (None, LOCAL):
        given = {"workers": workers, "threads": threads, "memory": memory}
        if any(value is not None for value in given.values()):
            names = ", ".join(f"--{name}" for name, value in given.items() if value is not None)
            raise UsageError(f"{scheduler} has workers of its own: give them {names} where they are started")
        return Cluster(str(scheduler), 0, None)
    count = workers or available()
    whole = budget(memory)
    most = whole.bytes // LEAST_BYTES
    if count > most and (memory is not None or workers is not None):
        there = f"{memory} is" if memory is not None else f"{whole.bytes >> 20} MiB ({whole.source}) are"
        raise UsageError(
            f"{there} too little memory for {count} workers, each needs {LEAST_BYTES >> 20} MiB: "
            f"give --workers {most} or fewer{', or more memory' if memory is not None else ''}"
        )
    count = min(count, most)
    each = Share(max(1, (threads or available()) // count), whole.bytes // count)
    return Processes(count, each) if scheduler is None else Cluster(LOCAL, count, each)


def available() -> int:
    """Processors that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


#: Part of its limit that a worker of a cluster may use: from 80 % on Dask gives it no more work, at 95 % it ends it.
_OF_LIMIT = 0.75


def _settle(number: int, share: Share | None) -> None:
    # Captures are what runs in parallel; and sums of floats must not depend on how many threads made them.
    os.environ["POLARS_MAX_THREADS"] = "1"
    if share is not None:
        share.take(number)


# Processes -----------------------------------------------------------------------------------------------------------


class Processes:
    """Processes of this machine; the death of one costs nobody a result.

    A pool cannot tell whose work killed a process, and memory may have run out only because several large captures
    were read at once. So what was running when a process died is done again, one at a time, after all others.
    """

    def __init__(self, count: int, share: Share | None = None) -> None:
        self._count = count
        self._share = share
        self._pool: ProcessPoolExecutor | None = None
        self._others: set[Any] = set()

    def __enter__(self) -> Self:
        self._others = set(multiprocessing.active_children())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(now=kind is not None)

    def outcomes(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield the index of every task with its result or its exception, in the order in which they end."""
        waiting = deque(range(len(tasks)))
        suspects: list[int] = []
        while waiting:
            suspects += yield from self._until_death(work, tasks, waiting, self._count)
        for index in suspects:
            died = yield from self._until_death(work, tasks, deque([index]), 1)
            for _ in died:
                yield index, WorkerDied()

    def _until_death(
        self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], waiting: deque[int], at_once: int
    ) -> Generator[tuple[int, Any], None, list[int]]:
        """Work until all is done or a process dies; returns what was running or next in line then."""
        running: dict[Future[Any], int] = {}
        # One in line: no worker waits until the caller has written what it made. Of a single worker and its caller one
        # works at a time, on one processor.
        most = at_once + 1 if at_once > 1 else 1
        while waiting or running:
            while waiting and len(running) < most:
                try:
                    running[self._submit(work, *tasks[waiting[0]])] = waiting[0]
                except BrokenProcessPool:
                    # A process died between two results; nothing says that this task would have killed it.
                    self._close(now=True)
                    if not running:
                        continue
                    return list(running.values())
                waiting.popleft()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            lost = [running[future] for future in done if isinstance(future.exception(), BrokenProcessPool)]
            for future in done:
                index, error = running.pop(future), future.exception()
                if not isinstance(error, BrokenProcessPool):
                    yield index, future.result() if error is None else error
            if lost:
                self._close(now=True)
                return sorted([*lost, *running.values()])
        return []

    def _submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._pool is None:
            # Spawned, not forked: the core and polars have threads, whose locks a forked child would never get.
            context = multiprocessing.get_context("spawn")
            started = context.Value("i", 0)
            self._pool = ProcessPoolExecutor(
                self._count, mp_context=context, initializer=_start_process, initargs=(started, self._share)
            )
        with _without_interrupts():
            return self._pool.submit(work, *arguments)

    def _close(self, *, now: bool) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if now:
            # Results that nobody waits for: minutes of work must not hold up Ctrl-C. Workers write no files.
            for process in multiprocessing.active_children():
                if process not in self._others:
                    process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: the parent decides, and one message is enough."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process(started: Any, share: Share | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with started.get_lock():
        number = started.value
        started.value += 1
    _settle(number, share)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A parent that was killed cannot say so, and the worker would wait for work for ever.
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    from multiprocessing.connection import wait as wait_for

    wait_for([sentinel])
    os._exit(1)


# Dask ----------------------------------------------------------------------------------------------------------------


class Cluster:
    """Workers of a Dask cluster: an existing one, or one of this machine that lives as long as the run."""

    def __init__(self, scheduler: str, count: int, share: Share | None) -> None:
        self._scheduler = scheduler
        self._count = count
        self._share = share
        self._client: Client | None = None
        self._cluster: Any = None

    def __enter__(self) -> Self:
        try:
            import dask
            import distributed
        except ImportError as error:
            raise UsageError("--scheduler needs Dask: pip install 'pyanalyze-gpu[fleet]'") from error
        try:
            if self._scheduler == LOCAL:
                # One piece of work at a time for each worker: nobody waits behind one that is about to die.
                rules = {"distributed.scheduler.worker-saturation": 1.0, "distributed.scheduler.allowed-failures": 1}
                with _without_interrupts(), dask.config.set(rules):
                    # No dashboard, no port for other machines; a worker that dies is started again.
                    self._cluster = distributed.LocalCluster(
                        n_workers=self._count, threads_per_worker=1, processes=True, host="127.0.0.1",
                        memory_limit=0, dashboard_address=None, silence_logs=50,
                    )  # fmt: skip
                self._client = distributed.Client(self._cluster)
            elif Path(self._scheduler).is_file():
                self._client = distributed.Client(scheduler_file=self._scheduler)
            else:
                self._client = distributed.Client(self._scheduler)
            self._client.register_plugin(_settling(self._share))
        except (OSError, ValueError) as error:
            self.__exit__(error)
            raise UsageError(
                f"{self._scheduler}: no Dask scheduler answers there ({error}); give tcp://HOST:PORT, the file that "
                f"`dask scheduler --scheduler-file` wrote, or `{LOCAL}`"
            ) from error
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for part in (self._client, self._cluster):
            if part is not None:
                # Dask asserts that a worker runs which it is just starting again; what was asked for is here already.
                with suppress(TimeoutError, OSError, AssertionError):
                    part.close()
        self._client = self._cluster = None

    def outcomes(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield the index of every task with its result or its exception, in the order in which they end."""
        suspects = []
        for index, found in self._ended(work, tasks, range(len(tasks))):
            if isinstance(found, WorkerDied):
                suspects.append(index)
            else:
                yield index, found
        # Who was in line behind the work that killed a worker looks just as guilty: each once more, by itself.
        for index in sorted(suspects):
            yield from self._ended(work, tasks, [index])

    def _ended(
        self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], indices: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        from concurrent.futures import CancelledError

        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        if self._client is None or not indices:
            return
        asked = [tasks[index] for index in indices]
        # Not `pure`: what is known already, and whether it may be trusted, is for our cache to say.
        futures = self._client.map(_call, [work] * len(asked), asked, pure=False, batch_size=1000)
        index_of = {future.key: index for future, index in zip(futures, indices, strict=True)}
        pending = as_completed(futures)
        # Only what has not ended is held on to: results of a hundred thousand captures are not kept in the workers.
        del futures
        for future in pending:
            found: Any
            try:
                found = future.result()
            except CancelledError as error:
                raise ConnectionError(
                    f"{self._scheduler}: the Dask scheduler went away; what is finished is kept, run it again to go on"
                ) from error
            except KilledWorker:
                found = WorkerDied()
            except Exception as error:  # noqa: BLE001  # whatever the work raised is its result
                found = error
            yield index_of.pop(future.key), found


def _settling(share: Share | None) -> Any:
    """What tells every worker of a cluster, also one that comes later, which processors are its own."""
    from distributed import WorkerPlugin

    class Settling(WorkerPlugin):
        idempotent = True

        def setup(self, worker: Any) -> None:
            # Later it would have no effect: polars has made its threads.
            if "polars" not in sys.modules:
                name = str(worker.name)
                _settle(int(name) if name.isdigit() else 0, share)
                limit = worker.memory_manager.memory_limit
                if share is None and limit:
                    # Of several workers of one machine nobody may take all of it.
                    os.environ.setdefault(VARIABLE, str(max(LEAST_BYTES, int(limit * _OF_LIMIT))))

    return Settling()


def _call(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return work(*arguments)
