"""Who does the work: processes of this machine, or the workers of a Dask cluster.

Both are told functions and arguments and give back results as they end; both survive the death of a worker. Workers
write no files, so that one that is killed half-way leaves nothing behind.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from pyanalyze.errors import UsageError
from pyanalyze.fleet.failures import WorkerDied
from pyanalyze.tables.memory import LEAST_BYTES, VARIABLE, budget

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from distributed import Client

#: The word for a Dask cluster that is started here, for this run.
LOCAL = "local"


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


class Executor(Protocol):
    """What runs functions in workers; a context manager."""

    def __enter__(self) -> Self:
        """Get ready."""
        ...

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop; at once when an exception ends the block."""
        ...

    def outcomes(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield the index of every task with its result or its exception, in the order in which they end."""
        ...


def executor_for(
    scheduler: str | None, workers: int | None, *, threads: int | None = None, memory: str | int | None = None
) -> Executor:
    """Choose the executor.

    Parameters
    ----------
    scheduler
        None: processes of this machine. ``local``: a Dask cluster of this machine, started for this run. Else the
        address of a Dask scheduler (``tcp://host:8786``), or the JSON file that a scheduler wrote.
    workers
        How many at once; None: the processors at hand. An existing cluster has its own number.
    threads, memory
        Of all workers together; each gets its part. None: all at hand (:func:`pyanalyze.tables.memory.budget`). The
        workers of an existing cluster have what its operator gave them (`dask worker --memory-limit`).

    Raises
    ------
    pyanalyze.errors.UsageError
        No workers, too little memory for so many, Dask is not installed, or workers for a cluster that has its own.

    Examples
    --------
    >>> with executor_for(None, 1) as executor:
    ...     list(executor.outcomes(abs, [(-1,), (-2,)]))
    [(0, 1), (1, 2)]
    """
    if workers is not None and workers < 1:
        raise UsageError(f"{workers} workers are too few; give 1 or more")
    if scheduler not in (None, LOCAL):
        given = {"workers": workers, "threads": threads, "memory": memory}
        if any(value is not None for value in given.values()):
            names = ", ".join(f"--{name}" for name, value in given.items() if value is not None)
            raise UsageError(f"{scheduler} starts its own workers: set {names} there")
        return Cluster(str(scheduler), 0, None)
    count = workers or available()
    whole = budget(memory)
    most = whole.bytes // LEAST_BYTES
    if count > most and (memory is not None or workers is not None):
        there = f"{memory} is" if memory is not None else f"{whole.bytes >> 20} MiB ({whole.source}) are"
        raise UsageError(
            f"{there} too little memory for {count} workers, which need {LEAST_BYTES >> 20} MiB each: give --workers "
            f"{most} or fewer{', or more memory' if memory is not None else ''}"
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
    # Started with the first process it would unblock the signal for that one: it restores no mask but unblocks.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process(started: Any, share: Share | None) -> None:
    with started.get_lock():
        number = started.value
        started.value += 1
    _begin(number, share)


def _begin(number: int, share: Share | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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

#: Dask takes some 5 ms of processors to hand out a piece of work and to bring back what came of it. So short tasks
#: travel together: so many at most, and what is not begun after so many seconds is handed out anew.
_PIECE_TASKS = 16
_PIECE_S = 0.5
#: Workers that end before they have reached the scheduler, one after the other, until somebody must look at it.
_STILLBORN = 3
#: For a cluster of this machine that lives as long as a run, and that nobody watches.
_LOCAL_RULES: dict[str, Any] = {
    # One piece of work at a time for each worker: nobody waits behind one that is about to die. Who was in a piece that
    # killed a worker is tried again by us.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.allowed-failures": 0,
    # Not needed for that, and a tenth of a processor: samples of the stacks of every process 100 times a second, disks
    # and GPUs for the dashboard, copies of results.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.active-memory-manager.start": False,
}


_NEEDS_DASK = "--scheduler needs Dask: pip install 'pyanalyze-gpu[fleet]'"
#: Loggers that write what happens in Dask, with the loggers below them.
_DASK_LOGGERS = ("distributed", "dask", "tornado", "asyncio")


class _DaskLog(logging.Handler):
    """What Dask logs, kept from stderr: tracebacks of closed connections, above all. Our errors name its last warning.

    Only handlers that write to a stream are replaced: a log file that the user told Dask to write stays.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._replaced: list[tuple[logging.Logger, list[logging.Handler]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Remember a warning or an error, in one line."""
        try:
            words = record.getMessage()
        except (TypeError, ValueError):
            words = str(record.msg)  # with arguments that do not fit it
        error = record.exc_info[1] if record.exc_info else None
        first = words.strip().partition("\n")[0]
        self.last = first if error is None else f"{first}: {_in_words(error)}"

    def capture(self) -> None:
        """Replace the handlers, after Dask was imported and has made them."""
        below = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _DASK_LOGGERS]
        for name in {*_DASK_LOGGERS, *below}:
            logger = logging.getLogger(name)
            # Some of those below have a handler of their own and hand nothing on to those above.
            if name not in _DASK_LOGGERS and not logger.handlers:
                continue
            self._replaced.append((logger, list(logger.handlers)))
            logger.handlers[:] = [*(one for one in logger.handlers if not _is_stream(one)), self]

    def restore(self) -> None:
        """Put back what was there."""
        while self._replaced:
            logger, handlers = self._replaced.pop()
            logger.handlers[:] = handlers


def _is_stream(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0].removesuffix(":")


class Cluster:
    """Workers of a Dask cluster: an existing one, or one of this machine that lives as long as the run."""

    def __init__(self, scheduler: str, count: int, share: Share | None) -> None:
        # Said before anything is looked for or written. Its import is left until the workers are under way.
        if find_spec("distributed") is None:
            raise UsageError(_NEEDS_DASK)
        self._scheduler = scheduler
        self._client: Client | None = None
        self._cluster: Any = None
        self._team = _Team(count, share) if scheduler == LOCAL else None
        self._lost: ConnectionError | None = None
        self._log = _DaskLog()

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException as error:
            self.__exit__(error)
            raise
        return self

    def _open(self) -> None:
        if self._team is not None:
            # They import Dask, and what their work needs, while we import Dask.
            self._team.start()
        try:
            import dask
            import distributed
        except ImportError as error:
            raise UsageError(_NEEDS_DASK) from error
        self._log.capture()
        try:
            if self._team is not None:
                with dask.config.set({**_LOCAL_RULES, "temporary-directory": self._team.scratch}):
                    # No dashboard, no port for other machines.
                    # Not silenced by Dask: it speaks again while it closes, before the last connection is closed.
                    self._cluster = distributed.LocalCluster(
                        n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=False
                    )
                    self._client = distributed.Client(self._cluster)
                self._team.serve(self._cluster.scheduler_address, self._give_up)
            else:
                is_file = Path(self._scheduler).is_file()
                if is_file:
                    _check_note(Path(self._scheduler))
                self._client = distributed.Client(**{"scheduler_file" if is_file else "address": self._scheduler})
                self._client.register_plugin(_settling())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{self._scheduler}: no Dask scheduler answers ({error}); give tcp://HOST:PORT, the file of `dask "
                f"scheduler --scheduler-file`, or `{LOCAL}`"
            ) from error

    def __exit__(self, kind: object, *_: object) -> None:
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        silent = client is not None
        # The scheduler ends before its workers: it would speak of connections that break.
        if self._team is not None:
            self._team.retire()
        try:
            for part in (client, cluster):
                if part is not None:
                    try:
                        part.close()
                    except (TimeoutError, OSError):
                        silent = False
            # Whatever was not closed may still log, up to the end of the process.
            if silent:
                self._log.restore()
        finally:
            if self._team is not None:
                self._team.stop()

    def outcomes(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield the index of every task with its result or its exception, in the order in which they end."""
        suspects = yield from self._until_done(work, tasks, _pieces(range(len(tasks)), self._at_once()))
        # Who was in one piece with the work that killed a worker, or beside it, looks just as guilty: each once more,
        # and then by itself.
        suspects = yield from self._until_done(work, tasks, [[index] for index in sorted(suspects)])
        for index in sorted(suspects):
            died = yield from self._until_done(work, tasks, [[index]])
            for _ in died:
                yield index, WorkerDied()

    def _give_up(self, why: str) -> None:
        """Nobody works any more; called in another thread."""
        from distributed import Future

        self._lost = ConnectionError(
            f"{self._scheduler}: workers end before they start work ({why}); leave out --scheduler"
        )
        if (client := self._client) is not None:
            client.cancel([Future(key, client) for key in list(client.futures)])

    def _at_once(self) -> int:
        if self._team is not None:
            return self._team.count
        return 0 if self._client is None else sum(self._client.nthreads().values())

    def _until_done(
        self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], pieces: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, Any], None, list[int]]:
        """Work on pieces, which are indices of tasks; returns those that were in a piece whose workers died."""
        died: list[int] = []
        client = self._client
        if client is None or not pieces:
            return died
        from concurrent.futures import CancelledError

        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        # Futures are held on to by this only, until they have ended: results of a hundred thousand captures are not
        # kept in the workers.
        pending = as_completed()
        asked: dict[str, Sequence[int]] = {}

        def ask(pieces: Sequence[Sequence[int]]) -> None:
            arguments = [[tasks[index] for index in piece] for piece in pieces]
            # Not `pure`: what is known already, and whether it may be trusted, is for our cache to say.
            futures = client.map(_call, [work] * len(pieces), arguments, pure=False, batch_size=100)
            asked.update((str(future.key), piece) for future, piece in zip(futures, pieces, strict=True))
            pending.update(futures)
            if self._lost is not None:
                raise self._lost

        ask(pieces)
        for future in pending:
            piece = asked.pop(str(future.key))
            try:
                done = future.result()
            except CancelledError as error:
                why = f" ({self._log.last})" if self._log.last else ""
                raise self._lost or ConnectionError(
                    f"{self._scheduler}: the Dask scheduler has gone{why}; finished results are kept: run it again to "
                    "continue"
                ) from error
            except KilledWorker:
                died += piece
                continue
            except Exception as error:  # noqa: BLE001  # whatever the work raised is its result
                done = [error] * len(piece)
            del future
            if rest := piece[len(done) :]:
                # As many as there was time for: tasks that take long travel alone.
                ask([rest[first : first + len(done)] for first in range(0, len(rest), len(done))])
            yield from zip(piece, done, strict=False)
        return died


def _check_note(file: Path) -> None:
    """Dask fails an assertion on a file that no scheduler wrote, after a second of trying."""
    plain = json.loads(file.read_text(encoding="utf-8"))
    if not (isinstance(plain, dict) and plain.get("address")):
        raise ValueError("the file has no address")


def _pieces(indices: Sequence[int], at_once: int) -> list[Sequence[int]]:
    """Divide work among so many; towards the end, and where there is little, one at a time.

    Examples
    --------
    >>> _pieces(range(18), 1)
    [range(0, 4), range(4, 7), range(7, 9), range(9, 11), range(11, 12), range(12, 13), range(13, 14), range(14, 15), \
range(15, 16), range(16, 17), range(17, 18)]
    """
    pieces = []
    first = 0
    while first < len(indices):
        # Nobody has come yet who works: they may be many.
        share = (len(indices) - first) // (4 * at_once) if at_once else 1
        pieces.append(indices[first : first + max(1, min(_PIECE_TASKS, share))])
        first += len(pieces[-1])
    return pieces


def _call(work: Callable[..., Any], piece: Sequence[tuple[Any, ...]]) -> list[Any]:
    """In a worker: results and exceptions of the first tasks of a piece, at least of one; the rest was not begun."""
    end = time.monotonic() + _PIECE_S
    done: list[Any] = []
    for arguments in piece:
        try:
            done.append(work(*arguments))
        except Exception as error:  # noqa: BLE001  # whatever the work raises is its result
            done.append(_sendable(error))
        if time.monotonic() > end:
            break
    return done


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # made here
    except Exception:  # noqa: BLE001  # of an exception that cannot travel, its words do
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _settling() -> Any:
    """What tells every worker of an existing cluster, also one that comes later, what is its own."""
    from distributed import WorkerPlugin

    class Settling(WorkerPlugin):
        idempotent = True

        def setup(self, worker: Any) -> None:
            # Later it would have no effect: polars has made its threads.
            if "polars" not in sys.modules:
                _settle(0, None)
                if limit := worker.memory_manager.memory_limit:
                    # Of several workers of one machine nobody may take all of it.
                    os.environ.setdefault(VARIABLE, str(max(LEAST_BYTES, int(limit * _OF_LIMIT))))

    return Settling()


class _Team:
    """Processes of this machine that work for a scheduler in this one; who dies is replaced.

    Dask's own (`Nanny`) would begin only when Dask is imported here, and import it one after the other with us.
    """

    def __init__(self, count: int, share: Share | None) -> None:
        self.count = count
        self._share = share
        self._context = multiprocessing.get_context("spawn")
        self._members: list[tuple[BaseProcess, Connection]] = []
        self._address: str | None = None
        self._stopped = threading.Event()
        self._changing = threading.Lock()
        self.scratch = ""

    def start(self) -> None:
        """Start them; they get ready without a scheduler."""
        self._stopped.clear()
        self.scratch = tempfile.mkdtemp(prefix="pyanalyze-")
        for number in range(self.count):
            self._members.append(self._started(number))

    def serve(self, address: str, give_up: Callable[[str], None]) -> None:
        """Have them work for a scheduler; `give_up` is told why if they end again and again before they reached it."""
        with self._changing:
            self._address = address
            for _, pipe in self._members:
                with suppress(OSError):
                    pipe.send(address)
        threading.Thread(target=self._replace, args=(give_up,), daemon=True).start()

    def retire(self) -> None:
        """Replace nobody from here on."""
        with self._changing:
            self._stopped.set()

    def stop(self) -> None:
        """End them at once: they write nothing, and what they gave back is here."""
        self.retire()
        members, self._members = self._members, []
        for process, _ in members:
            process.kill()
        for process, pipe in members:
            process.join()
            pipe.close()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _started(self, number: int) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        arguments = (number, self._share, theirs, self.scratch)
        process = self._context.Process(target=_work_for_dask, args=arguments, daemon=True)
        with _without_interrupts():
            process.start()
        theirs.close()
        return process, ours

    def _replace(self, give_up: Callable[[str], None]) -> None:
        from multiprocessing.connection import wait as wait_for

        stillborn, why = 0, ""
        while not self._stopped.is_set():
            wait_for([process.sentinel for process, _ in self._members])
            with self._changing:
                if self._stopped.is_set():
                    return
                for number, (process, pipe) in enumerate(self._members):
                    if process.exitcode is None:
                        continue
                    reached, why = _said(pipe)
                    why = why or f"exit status {process.exitcode}"
                    stillborn = 0 if reached else stillborn + 1
                    if stillborn > _STILLBORN:
                        self._stopped.set()
                        break
                    process.join()
                    pipe.close()
                    self._members[number] = self._started(number)
                    with suppress(OSError):
                        self._members[number][1].send(self._address)
        if stillborn > _STILLBORN:
            give_up(why)


def _said(pipe: Connection) -> tuple[bool, str]:
    """Whether a worker that died had reached the scheduler, and why not if it could say so."""
    try:
        return pipe.recv() if pipe.poll() else (False, "")
    except (EOFError, OSError):
        return False, ""


def _work_for_dask(number: int, share: Share | None, pipe: Connection, scratch: str) -> None:
    """In a process of a team: work until somebody ends it."""
    try:
        _serve_dask(number, share, pipe, scratch)
    except Exception as error:  # noqa: BLE001  # whatever it is, its first line says it and not a traceback
        with suppress(OSError):
            pipe.send((False, _in_words(error)))
        sys.exit(1)


def _serve_dask(number: int, share: Share | None, pipe: Connection, scratch: str) -> None:
    _begin(number, share)
    import asyncio

    import dask
    import distributed

    _DaskLog().capture()
    from pyanalyze.fleet import work  # noqa: F401  # before the first work comes, and while the scheduler is started

    async def serve(address: str) -> None:
        # Those who have the processors decide about memory (`Share`); Dask watches none.
        async with distributed.Worker(
            address, nthreads=1, memory_limit=0, local_directory=scratch, host="127.0.0.1"
        ) as worker:
            pipe.send((True, ""))
            await worker.finished()

    with dask.config.set(_LOCAL_RULES):
        asyncio.run(serve(pipe.recv()))
