"""Tunes problems: for each, a line of a tuned table, or why there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from iree.compiler import ir

from mxcomp.measuring.subject import RESULT_BYTES
from mxcomp.options import Options
from mxcomp.registry import Registry
from mxcomp.selection import split_k
from mxcomp.selection.ranking import fastest
from mxcomp.selection.tuned_lines import MODELLED, Key, Line
from mxcomp.target import get_target
from mxcomp.tuning.trial import Outcome, Trial, attempt

_AHEAD = 8
"""The number of problems whose candidates are submitted while those before them are waited for."""


@dataclass(frozen=True)
class Settings:
    """Settings of tuning.

    Attributes:
        device: "sim": times are modelled; "hip": measured on the GPU.
        candidates: How many, best first by the table of replays, are compiled and timed; 0: that table alone ranks.
        ukernel_dirs: More ukernels.
    """

    device: str = "sim"
    candidates: int = 0
    ukernel_dirs: tuple[str | Path, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A problem without a line."""

    key: Key
    reason: str


Attempt = Callable[[Trial], Outcome]


def tune(
    keys: Iterable[Key],
    settings: Settings = Settings(),
    executor: Executor | None = None,
    task: Attempt = attempt,
) -> Iterator[Line | Failure]:
    """Yields a line or a failure for each problem, in order, as they are done.

    Candidates are compiled and timed by `executor` (of `concurrent.futures`, Dask's, …), by default one after the
    other in this process; `task` is what it is given, with a `Trial`.
    """
    waiting: deque[tuple[Key, list[Outcome], list[Future[Outcome]]]] = deque()
    registries: dict[str, Registry] = {}
    for key in keys:
        if key.target not in registries:
            with ir.Context(), ir.Location.unknown():
                registries[key.target] = Registry(get_target(key.target), settings.ukernel_dirs)
        ranked = _ranked(key, registries[key.target], settings)
        trials = [
            Trial(key, each.kernel, settings.device, tuple(map(str, settings.ukernel_dirs)), each.parts)
            for each in ranked[: settings.candidates]
        ]
        waiting.append((key, ranked, [_submitted(executor, task, trial) for trial in trials]))
        if executor is None or len(waiting) >= _AHEAD:
            yield _result(*waiting.popleft())
    while waiting:
        yield _result(*waiting.popleft())


def _ranked(key: Key, registry: Registry, settings: Settings) -> list[Outcome]:
    """Returns ukernels by the table of replays, the fastest first, and the fastest split K if that is faster."""
    options, size = Options.make(key.target, ukernel_dirs=settings.ukernel_dirs), RESULT_BYTES[key.result or "f32"]
    ranked = fastest(key.problem, registry, size)
    found = [Outcome(each.ukernel.name, MODELLED, each.us) for each in ranked]
    split = split_k.faster(key.problem, ranked[0], registry, options, size) if ranked else None
    return found if split is None else [Outcome(split.kernel, MODELLED, split.us, parts=split.parts), *found]


def _submitted(executor: Executor | None, task: Attempt, trial: Trial) -> Future[Outcome]:
    if executor is not None:
        return executor.submit(task, trial)
    done: Future[Outcome] = Future()
    done.set_result(task(trial))
    return done


def _result(key: Key, ranked: Sequence[Outcome], futures: Sequence[Future[Outcome]]) -> Line | Failure:
    if not ranked:
        return Failure(key, "no ukernel with known times fits: expected K to be a multiple of 32, and none of your own")
    outcomes = [future.result() for future in futures] or ranked
    timed = sorted((each.us, each.kernel, each.source, each.parts) for each in outcomes if each.us is not None)
    if not timed:
        return Failure(key, "no candidate is right: " + "; ".join(f"{each.kernel}: {each.reason}" for each in outcomes))
    (us, kernel, source, parts), *others = timed
    return Line(key, kernel, source, us, others[0][0] / us - 1 if others else None, split_k=parts)
