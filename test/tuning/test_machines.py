"""Tuning by a real Dask cluster of two processes: the same lines, also where one of them is killed on the way."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import pytest

from mxcomp.errors import InputError
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.selection.tuned_lines import Key, Line
from mxcomp.support.workers import WorkerError
from mxcomp.tools import tune as tool
from mxcomp.tuning import Failure, Outcome, Settings, Trial, machines, tune

if TYPE_CHECKING:
    from distributed import LocalCluster

TYPES = ("f4E2M1FN", "f4E2M1FN", *SCALES_AND_RESULT)
KEYS = [Key("gfx950", Problem(m, 64, 512, TYPES), "bf16") for m in range(16, 128, 16)]
SETTINGS = Settings(candidates=2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with cluster_of(2) as made:
        yield made


def cluster_of(workers: int, threads: int = 1, processes: bool = True) -> LocalCluster:
    """Without a dashboard: what the scheduler serves else has any port that is free, not 8787."""
    from distributed import LocalCluster  # here, as each worker of pytest imports all tests

    ports = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    return LocalCluster(workers, threads_per_worker=threads, processes=processes, **ports)


def at_once(trial: Trial) -> Outcome:
    """µs that differ from candidate to candidate."""
    return Outcome(trial.kernel, "modelled", 1.0 + hash_of(trial) % 97)


def slowly(trial: Trial) -> Outcome:
    time.sleep(0.1)
    return at_once(trial)


def deadly(trial: Trial) -> Outcome:
    if trial.key.problem.m == 32:
        os.kill(os.getpid(), signal.SIGKILL)
    return at_once(trial)


def hash_of(trial: Trial) -> int:
    return sum(f"{trial.kernel}{trial.key.problem.m}".encode())


def test_a_worker_is_killed(cluster: LocalCluster) -> None:
    """While each has something to do: the other one, and the one that comes in its place, do all of it."""
    local = list(tune(KEYS, SETTINGS, None, at_once))
    with machines.executor(cluster.scheduler_address) as executor:
        found = tune(KEYS, SETTINGS, executor, slowly)
        lines = [next(found)]
        victim = next(iter(cluster.workers.values())).pid
        os.kill(victim, signal.SIGKILL)
        lines += found
    assert lines == local
    assert all(isinstance(line, Line) for line in lines)
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)


@pytest.mark.slow
def test_a_candidate_that_kills_its_workers_fails_alone() -> None:
    config = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with config, cluster_of(2) as cluster, machines.executor(cluster.scheduler_address) as executor:
        (failure,) = tune(KEYS[1:2], SETTINGS, executor, deadly)
        (line,) = tune(KEYS[:1], SETTINGS, executor, deadly)
    assert isinstance(failure, Failure)
    assert "every machine that compiled or timed it was gone" in failure.reason
    assert isinstance(line, Line)


@pytest.mark.slow
def test_the_command(cluster: LocalCluster, tmp_path: Path, capfd: Any) -> None:
    """Candidates compiled and replayed elsewhere: the table is that of this machine's processes."""
    shapes = ["16x64x512", "64x64x512", "96x128x512"]
    local, spread = tmp_path / "local.csv", tmp_path / "spread.csv"
    command = [*shapes, "--candidates=2"]
    assert tool.main([*command, "-o", str(local), "--jobs=1"]) == 0
    killer = threading.Timer(3.0, lambda: os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL))
    killer.start()
    assert tool.main([*command, "-o", str(spread), "--dask", cluster.scheduler_address]) == 0
    killer.join()
    assert spread.read_text() == local.read_text()
    assert "3 tuned, 0 in the table before" in capfd.readouterr().err


@pytest.mark.slow
def test_the_scheduler_goes() -> None:
    gone = pytest.raises(WorkerError, match="the scheduler is gone; what was found is in the table")
    with cluster_of(1) as alone, gone, machines.executor(alone.scheduler_address) as executor:
        found = tune(KEYS, SETTINGS, executor, slowly)
        next(found)
        alone.close()
        list(found)


def test_others_versions_are_refused(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "__version__", "0.0.1")
    refused = pytest.raises(InputError, match=r"has mxcomp .*: expected 0\.0\.1, as here")
    with refused, machines.executor(cluster.scheduler_address):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dask=tcp://127.0.0.1:9", "--candidates=1"], "--dask=tcp://127.0.0.1:9: no scheduler answers"),
        (["--dask=nonsense", "--candidates=1"], "--dask=nonsense: no scheduler answers"),
        (["--dask=tcp://127.0.0.1:9"], "--candidates=0: nothing would be compiled"),
        (["--dask=tcp://127.0.0.1:9", "--candidates=1", "--jobs=2"], "and --jobs=2: expected"),
    ],
)
def test_what_cannot_be(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(machines, "_TIMEOUT", "1s")
    assert tool.main(["16x64x512", *arguments]) == 1
    assert message in capfd.readouterr().err
    # A client without a scheduler stops its loop when it is collected, and waits for a lock: for ever where a cluster
    # that starts has it.
    gc.collect()


def test_without_dask(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    assert tool.main(["16x64x512", "--dask=tcp://127.0.0.1:9", "--candidates=1"]) == 1
    assert "pip install 'mxcomp[distributed]'" in capfd.readouterr().err


def test_a_gpu_measures_one_thing_at_a_time() -> None:
    refused = pytest.raises(InputError, match="does 2 things at a time")
    cluster = cluster_of(1, threads=2, processes=False)
    with cluster as made, refused, machines.executor(made.scheduler_address, one_at_a_time=True):
        pass
