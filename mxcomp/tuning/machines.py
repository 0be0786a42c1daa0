"""Distributes candidates over machines, by a Dask cluster of the user's: `mxcomp-tune --dask ADDRESS`.

What a machine had when it went is done by another one, and a machine that comes takes its part. Needs the extra
"distributed".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mxcomp.errors import InputError, MxcompError
from mxcomp.support.version import __version__
from mxcomp.support.workers import WorkerError
from mxcomp.tuning.trial import Outcome, Trial, source_of

if TYPE_CHECKING:
    from distributed import Client

_TIMEOUT = "10s"
"""The time in which a scheduler has to answer."""


@contextmanager
def executor(address: str, one_at_a_time: bool = False) -> Iterator[Executor]:
    """Returns an executor over the machines of the scheduler at `address`, all of which have this version of mxcomp.

    Leaving it by an error cancels what is not done. Raises InputError where there is no such cluster.

    Args:
        one_at_a_time: Each worker has to do so, as one that measures does.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InputError(f"--dask={address} needs Dask: pip install 'mxcomp[distributed]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # of which users are told in a line of ours
    try:
        client = Client(address, timeout=_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--dask={address}: no scheduler answers ({reason}): expected tcp://HOST:PORT") from None
    with closing(client):
        _check(client, address, one_at_a_time)
        spread = _Spread(client, address)
        try:
            yield spread
        finally:
            spread.shutdown()


def _check(client: Client, address: str, one_at_a_time: bool) -> None:
    """Raises InputError where there are no workers, or where some would find other times than this process.

    One that does not answer is gone, or comes.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise InputError(f"--dask={address}: the scheduler has no workers: start dask worker {address}")
    for name, version in client.run(_version, on_error="return").items():
        if isinstance(version, OSError) or version == __version__:
            continue
        has = f"mxcomp {version}" if isinstance(version, str) else f"no mxcomp ({version})"
        raise InputError(f"--dask={address}: {name} has {has}: expected {__version__}, as here")
    for name, worker in workers.items():
        if one_at_a_time and worker["nthreads"] > 1:
            does = f"{name} does {worker['nthreads']} things at a time, and a GPU measures one"
            raise InputError(f"--dask={address} and --device=hip: {does}: expected dask worker --nthreads=1")


def _version() -> str:
    import mxcomp

    return mxcomp.__version__


def _of_version(version: str, task: Callable[..., Any], *args: Any) -> Any:
    """Runs a task on a machine that may have joined later. Raises InputError for another version of mxcomp."""
    if version != __version__:
        raise InputError(f"a machine that came has mxcomp {__version__}: expected {version}, as here")
    return task(*args)


class _Spread(Executor):
    """The tasks of a client, with our way of failing: a candidate that ends its machines fails alone."""

    def __init__(self, client: Client, address: str) -> None:
        self._client, self._address = client, address
        self._spread: list[Any] = []

    def submit(self, task: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        found: Future[Any] = Future()
        remote = self._client.submit(_of_version, __version__, task, *args, pure=False, **more)
        self._spread.append(remote)
        remote.add_done_callback(partial(self._pass_on, found, args))
        return found

    def _pass_on(self, found: Future[Any], args: tuple[Any, ...], remote: Any) -> None:
        from distributed import KilledWorker

        try:
            found.set_result(remote.result())
        except KilledWorker:
            (trial,) = args
            assert isinstance(trial, Trial)
            reason = "every machine that compiled or timed it was gone before it was done: was memory short?"
            found.set_result(Outcome(trial.kernel, source_of(trial), reason=reason, parts=trial.parts))
        except MxcompError as error:
            found.set_exception(error)
        except Exception as error:
            is_gone = isinstance(error, CancelledError | OSError) or self._client.status != "running"
            reason = "the scheduler is gone" if is_gone else f"{type(error).__name__}: {error}"
            again = "what was found is in the table: run it again"
            found.set_exception(WorkerError(f"--dask={self._address}: {reason}; {again}"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancels pending tasks."""
        self._client.cancel(self._spread)
