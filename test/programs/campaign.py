"""Many programs in worker processes, whatever happens to those: a crash or a hang is an outcome like others."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, Queue

import program
from checking import Outcome, check

TIMEOUT = 400.0
"""Seconds for one program."""
PROGRAMS = 500
"""So many are checked by one process: IREE's bindings never free a context, 4 MB for each program that is compiled."""
KINDS = ("right", "fallback", "wrong", "crash", "refused")


@dataclass(frozen=True)
class Record:
    """A line of the log."""

    seed: int
    kind: str
    message: str
    seconds: float
    features: list[str]


def outcome(seed: int) -> tuple[list[str], Outcome]:
    """Draws a program and checks it; one that cannot be drawn is a crash, of ours."""
    try:
        drawn = program.draw(seed)
    except Exception as error:
        return ["not drawn"], Outcome("crash", f"not drawn: {type(error).__name__}: {error}")
    return sorted(drawn.features), check(drawn)


def _work(pipe: Connection) -> None:
    while (seed := pipe.recv()) is not None:
        features, found = outcome(seed)
        pipe.send((features, asdict(found)))


class _Worker:
    """A process that checks one program after the other; a new one where the last has died or checked `PROGRAMS`."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._checked = 0

    def run(self, seed: int) -> Record:
        start = time.perf_counter()
        if self._checked == PROGRAMS:
            self.close()
        if self._process is None:
            self._checked = 0
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._checked += 1
        try:
            self._pipe.send(seed)
            if not self._pipe.poll(TIMEOUT):
                raise TimeoutError(f"no result after {TIMEOUT:.0f} s")
            features, found = self._pipe.recv()
            return Record(seed, features=features, **found)
        except (EOFError, OSError, TimeoutError) as error:
            message = str(error) if isinstance(error, TimeoutError) else self._end()
            self.close()
            return Record(seed, "crash", message, time.perf_counter() - start, _features(seed))

    def _end(self) -> str:
        assert self._process is not None
        self._process.join(5)
        return f"the process ended with {self._process.exitcode}"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _features(seed: int) -> list[str]:
    try:
        return sorted(program.draw(seed).features)
    except Exception:
        return []


def run(seeds: Sequence[int], jobs: int, log: Path | None = None) -> Iterator[Record]:
    """Records as they come, which are also appended to a log; what is in the log already is not run again."""
    done = {record.seed for record in read(log)} if log is not None else set()
    pending: Queue[int] = Queue()
    for seed in seeds:
        if seed not in done:
            pending.put(seed)
    records: Queue[Record | None] = Queue()

    def serve() -> None:
        worker = _Worker()
        try:
            while True:
                records.put(worker.run(pending.get_nowait()))
        except Empty:
            pass
        finally:
            worker.close()
            records.put(None)

    for _ in range(jobs):
        threading.Thread(target=serve, daemon=True).start()
    finished = 0
    while finished < jobs:
        record = records.get()
        if record is None:
            finished += 1
            continue
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps(asdict(record)) + "\n")
        yield record


def read(log: Path) -> list[Record]:
    """The records of a log, none if there is no such file."""
    return [Record(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def summary(records: Sequence[Record]) -> str:
    """Outcomes by feature, and time."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        for feature in ["all", *record.features]:
            counts.setdefault(feature, Counter())[record.kind] += 1
    rows = [("feature", *KINDS)] + [
        (name, *(str(found[kind]) for kind in KINDS)) for name, found in sorted(counts.items())
    ]
    seconds = sum(record.seconds for record in records) / max(1, len(records))
    lines = [f"{row[0]:<36}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows]
    return "\n".join([*lines, f"{seconds:.2f} s each"])
