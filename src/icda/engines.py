"""Where work on blocks of rows is done: here, in processes of this machine, or as tasks on a Ray cluster."""

import multiprocessing
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Literal, Protocol, Self

from icda.errors import InputError, OperationError
from icda.extras import require

Where = Literal["local", "ray"]
RETRIES = 3  # a worker that dies takes its block along: the block is done again, the job goes on
SECONDS_TO_ANSWER = 5.0  # for a cluster named by RAY_ADDRESS
ATTEMPTS = 2  # at work that is done apart: a worker that dies once may have had bad luck
AHEAD = 2  # blocks waiting for each processor, so that none is idle while results are added up


class Engine(Protocol):
    """Applies work(item, *shared) to items and gives results in the order of the items, so that sums are always equal."""

    def each(self, work: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Iterator[Any]: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None  # nothing to tidy up, unless an engine says otherwise


class Here(Engine):
    """In this process; torch's own threads use the cores."""

    def each(self, work: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Iterator[Any]:
        return (work(item, *shared) for item in items)


class Processes(Engine):
    """In at most `jobs` processes of this machine, which share its cores: jobs x threads are never more than torch's.

    What is `shared` is sent to each process once. A process that dies ends the job with a sentence.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = max(1, min(jobs, thread_budget()))
        self.threads = thread_budget() // self.jobs

    def each(self, work: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Iterator[Any]:
        with process_pool(self.jobs, self.threads, work, *shared) as pool:
            try:
                yield from _in_order(lambda item: pool.submit(_work_on, item), Future.result, items, AHEAD * self.jobs)
            except BrokenProcessPool as error:
                raise OperationError(
                    "one of the processes died: look for too little memory, or ask for fewer with --jobs."
                ) from error


class OnRay(Engine):
    """Tasks of one processor each, on the cluster that RAY_ADDRESS names, else on a Ray of `jobs` processes here.

    What is `shared` is stored once and fetched by each worker once. Workers read blocks themselves, by paths as they see
    them: on several machines the files lie on a shared disk.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.ray = require("ray", "ray", "blocks on a cluster")
        self.jobs = jobs or os.cpu_count() or 1
        self._own = False

    def __enter__(self) -> Self:
        self._own = not self.ray.is_initialized()
        if self._own:
            start_ray(self.ray, self.jobs)
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self.ray.shutdown()

    def each(self, work: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Iterator[Any]:
        ray = self.ray
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_alone)
        stored = [ray.put(part) for part in shared]
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        return _in_order(lambda item: task.remote(work, item, *stored), self._get, items, most)

    def _get(self, waiting: Any) -> Any:
        exceptions = self.ray.exceptions
        try:
            return self.ray.get(waiting)
        except exceptions.RayTaskError as error:
            raise error.cause from error  # what the work itself raised, as it would be here
        except exceptions.RayError as error:
            raise OperationError(
                f"a Ray worker died {RETRIES + 1} times on the same block ({type(error).__name__}): look for too little "
                "memory, or make blocks smaller."
            ) from error


def start_ray(ray: Any, jobs: int) -> None:
    """Connect to the cluster that RAY_ADDRESS names, else start a Ray of `jobs` processes here.

    Ray itself waits for minutes for a cluster that is not there, and then prints its own traceback.
    """
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
        return
    try:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        if host and port.isdigit():  # names without a port (auto, local) are Ray's business
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER).close()
        ray.init(include_dashboard=False, log_to_driver=False)
    # A ConnectionError of Ray is an OSError; a ValueError or RuntimeError is its answer to what is no address.
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        raise OperationError(
            f"no Ray answers at RAY_ADDRESS={address}: start it, or unset the variable to use this machine."
        ) from error


def make_engine(where: Where, jobs: int | None = None) -> Engine:
    """By its name on the command line; `jobs` above 1 are processes, of a Ray or of our own."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs is {jobs}, expected 1 or more.")
    if where == "ray":
        return OnRay(jobs)
    return Here() if jobs is None or jobs <= 1 else Processes(jobs)


class WorkerDiedError(OperationError):
    """The worker of one item died; others are not touched."""


def apart(
    work: Callable[[Any], Any], items: Sequence[Any], jobs: int = 1, where: Where = "local"
) -> Iterator[tuple[int, Any]]:
    """The number of each item with work(item), as they are finished; an error in its place where its worker died twice.

    With several `jobs`, and on Ray, each item has a process of one thread; one job here is done in this process.
    """
    if where == "ray":
        return on_ray(work, items, jobs)
    return in_processes(work, items, jobs) if jobs > 1 else enumerate(map(work, items))


def in_processes(work: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """`apart` in processes of this machine; an item whose process died is tried again in a new pool."""
    waiting, attempts = list(range(len(items))), Counter[int]()
    while waiting:
        with process_pool(jobs) as pool:
            futures = {pool.submit(work, items[number]): number for number in waiting}
            try:
                for future in as_completed(futures):
                    found = future.result()
                    waiting.remove(futures[future])
                    yield futures[future], found
            except BrokenProcessPool:
                # A broken pool does not say whose process died: the oldest open items were those in work.
                attempts.update(waiting[:jobs])
        for number in [number for number in waiting if attempts[number] == ATTEMPTS]:
            waiting.remove(number)
            yield number, WorkerDiedError("its process died (killed, or out of memory)")


def on_ray(work: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """`apart` as Ray tasks of one processor each."""
    with OnRay(jobs) as engine:
        ray = engine.ray
        task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_alone)
        waiting = {task.remote(work, item): number for number, item in enumerate(items)}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done)
            try:
                found = ray.get(done)
            except ray.exceptions.RayError as error:
                found = WorkerDiedError(f"its Ray worker died ({type(error).__name__})")
            yield number, found


def thread_budget() -> int:
    """How many threads this process may use: torch's number, which follows the cores and OMP_NUM_THREADS."""
    import torch

    return torch.get_num_threads()


def _in_order(
    submit: Callable[[Any], Any], collect: Callable[[Any], Any], items: Iterable[Any], most: int
) -> Iterator[Any]:
    """Results in the order of the items; at most `most` of them are under way."""
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) >= most:
            yield collect(waiting.popleft())
    while waiting:
        yield collect(waiting.popleft())


@contextmanager
def process_pool(jobs: int, threads: int = 1, *held: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes of so many torch threads each, which keep what is `held`. Work not begun at the end is dropped.

    The processes end with this one, however it ends, and at Ctrl-C without a word of their own.
    """
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for ever
    others = set(multiprocessing.active_children())
    with _Pool(jobs, mp_context=spawn, initializer=_begin, initargs=(threads, held)) as pool:
        try:
            yield pool
        except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what is being worked on
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


class _Pool(ProcessPoolExecutor):
    """Its processes never see Ctrl-C, not even while they start: they inherit that the signal is blocked."""

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            return super().submit(*call, **named)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*call, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # one that came meanwhile arrives now


_held: tuple[Any, ...] = ()  # what a process of a pool was given when it began


def _begin(threads: int, held: tuple[Any, ...]) -> None:
    global _held
    import torch

    torch.set_num_threads(threads)
    _held = held
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would finish its work and then wait for ever for the next."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work_on(item: Any) -> Any:
    work, *shared = _held
    return work(item, *shared)


def _alone(work: Callable[..., Any], item: Any, *shared: Any) -> Any:
    """Each task has one processor: more threads would only be in each other's way."""
    import torch

    torch.set_num_threads(1)
    return work(item, *shared)
