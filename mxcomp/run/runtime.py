"""Runs compiled programs: on this machine's CPU, on a simulated GPU, on the GPU.

Takes vmfb bytes; knows nothing of how they were made.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from iree import runtime as rt

from mxcomp.errors import InputError, MxcompError, VerifyError
from mxcomp.hip.interrupts import interruptible
from mxcomp.run import scalars, signature, statuses
from mxcomp.run.arrays import given
from mxcomp.run.devices import DRIVERS, Kept, device_of, end_simulation

_of_thread = threading.local()
"""The state of a thread, with its `Kept` by the device's name."""


class RunError(MxcompError):
    """A program failed on its device: the message is the runtime's, with the simulator's finding if there is one."""


def run(
    vmfb: bytes,
    function: str | None,
    inputs: Sequence[np.ndarray],
    device: str = "cpu",
    engine: str | None = None,
    checks: str | Sequence[str] | None = None,
    schedule: str | None = None,
    seed: int | None = None,
    parameters: Mapping[str, str | Path] | None = None,
    profile: str | Path | None = None,
    asked: Sequence[int] = (),
) -> list[np.ndarray]:
    """Calls a function of a module and returns its results.

    Args:
        vmfb: The module.
        function: Its name; None: the only one.
        inputs: Arguments, of the types that the function declares.
        device: "cpu", "sim" (code of the GPU on the simulator) or "hip" (on the GPU).
        engine, checks, schedule, seed: Of the simulator, see `mxcomp.sim.Device`; `checks` are names, as a sequence or
            with commas, "all" or "none". None: as MXCOMP_SIM_ENGINE and so on say. They hold for all of this process's
            simulated devices until the next run.
        parameters: Files (.irpa, .safetensors, .gguf) by the scope of the parameters in them, "" for no scope.
        profile: A file that gets a line for each launch on the simulator, for `mxcomp.profiling.read`.
        asked: Numbers of launches: only these get a line, and nothing is executed from the last one on, so that results
            mean nothing. Empty: all.

    What a signal handler raises while the program runs, such as KeyboardInterrupt, ends the call; then the simulation
    of this whole process ends, other threads' calls fail, and the next run starts a new one.

    Raises VerifyError on the CPU and RunError elsewhere when the program fails; InputError when there is no such
    device or function, or a file of parameters cannot be read.
    """
    how = settings(engine, checks, schedule, seed, profile) | {"asked": ",".join(map(str, asked)) or None}
    return on(device, lambda kept: load(vmfb, device, how, parameters or {}, kept).call(function, inputs))


def settings(
    engine: str | None,
    checks: str | Sequence[str] | None,
    schedule: str | None,
    seed: int | None,
    profile: str | Path | None,
) -> dict[str, str | None]:
    """Returns the arguments of `run` that concern the simulator, as `mxcomp.hip.settings` reads them."""
    listed = checks if checks is None or isinstance(checks, str) else ",".join(checks) or "none"
    return {
        "engine": engine, "checks": listed, "schedule": schedule, "seed": None if seed is None else str(seed),
        "profile": None if profile is None else str(profile),
    }  # fmt: skip


def timed(
    vmfb: bytes,
    inputs: Sequence[np.ndarray],
    device: str,
    runs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[np.ndarray], list[float]]:
    """Returns the results of a module's only function, and the seconds of each of `runs` further calls.

    Arguments are on the device before. A call returns when its work is done. Raises what `run` raises.
    """

    def work(kept: Kept) -> tuple[list[np.ndarray], list[float]]:
        call = load(vmfb, device, {}, {}, kept).function(None)
        arrays = call.on_device(inputs)
        results, seconds = call.arrays(arrays), []
        for _ in range(runs):
            start = clock()
            call(arrays)
            seconds.append(clock() - start)
        return results, seconds

    return on(device, work)


Result = TypeVar("Result")


def on(device: str, work: Callable[[Kept], Result], kept: Kept | None = None) -> Result:
    """Executes work on a device, interruptible by signals; by default on this thread's own device.

    Raises InputError for a device that there is not.
    """
    if device not in DRIVERS:
        raise InputError(f"device '{device}': expected {', '.join(DRIVERS)}")
    if kept is None:
        if getattr(_of_thread, "kept", None) is None:
            _of_thread.kept = defaultdict(Kept)
        kept = _of_thread.kept[device]
    try:
        return interruptible(partial(work, kept), end_simulation if device == "sim" else None)
    except MxcompError:
        raise
    except BaseException:  # of a signal handler, most likely
        kept.drop()
        raise


def _failure(device: str) -> type[MxcompError]:
    return VerifyError if device == "cpu" else RunError


@dataclass(frozen=True)
class _Function:
    """A function of a module, and the name of its device."""

    name: str
    invoke: rt.FunctionInvoker
    device: rt.HalDevice
    on: str
    kept: Kept

    def taken(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns arguments as IREE takes them: arrays, and numbers where scalars are declared. Raises InputError."""
        types = self._declared()
        known = [*types, *[None] * (len(inputs) - len(types))]
        return [
            scalars.of(value, kind, i) if isinstance(kind, str) else self._array(value, i)
            for i, (value, kind) in enumerate(zip(inputs, known, strict=False))
        ]

    def _array(self, value: Any, number: int) -> np.ndarray:
        """Returns an argument. One without elements is rejected: IREE's HIP driver cannot map it, and waits for
        ever."""
        array = given(value, number)
        if not array.size and self.on != "cpu":
            sizes = "x".join(map(str, array.shape))
            raise InputError(f"argument {number} ({sizes}) has no elements: expected sizes of 1 or more")
        return array

    def _declared(self) -> list[signature.Type]:
        reflection = self.invoke.vm_function.reflection
        return signature.arguments(reflection.get(signature.DECLARATION, ""))

    def on_device(self, inputs: Sequence[Any]) -> list[Any]:
        """Copies arrays to the device's memory; numbers stay as they are."""
        taken = self.taken(inputs)
        return [rt.asdevicearray(self.device, each) if isinstance(each, np.ndarray) else each for each in taken]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns results that are still on the device."""
        with self._failing():
            results = self.invoke(*inputs)
            self.kept.check_failure(self.device)
            return list(results) if isinstance(results, tuple | list) else [results]

    def arrays(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """Copies results to the host, as a view of the device's memory would keep the device alive."""
        results = self(inputs)
        with self._failing():
            return [np.asarray(result).copy() for result in results]

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            if not statuses.is_refusal(str(error)):
                self.kept.drop()  # a device on which a kernel has failed refuses all further work
            raise _failure(self.on)(f"@{self.name} failed: {statuses.explained(str(error))}") from None


@dataclass(frozen=True)
class Loaded:
    """A module on a device, with its parameters; `on` is the device's name.

    The context is the VM's own: one of `iree.runtime.SystemContext` is part of a cycle of references, which would keep
    the device and all of its memory until Python happens to collect it.
    """

    context: rt.VmContext
    module: rt.VmModule
    device: rt.HalDevice
    on: str
    kept: Kept

    def functions(self) -> list[str]:
        """Returns the names of functions that can be called."""
        return signature.functions(self.module)

    def function(self, name: str | None) -> _Function:
        """Returns a function; None: the only one. Raises InputError if there is none, or several."""
        chosen = name if name is not None else self._only_function()
        found = self.module.lookup_function(chosen)
        if found is None:
            raise InputError(f"no function '{chosen}': expected {', '.join(self.functions())}")
        invoke = rt.FunctionInvoker(self.context, self.device, found)
        return _Function(chosen, invoke, self.device, self.on, self.kept)

    def call(self, name: str | None, inputs: Sequence[Any]) -> list[np.ndarray]:
        """Returns the results of a function, on the host."""
        function = self.function(name)
        return function.arrays(function.taken(inputs))

    def _only_function(self) -> str:
        names = self.functions()
        if len(names) != 1:
            raise InputError(f"which function? expected one of {', '.join(names)}")
        return names[0]


def load(
    vmfb: bytes,
    device: str,
    settings: dict[str, str | None],
    parameters: Mapping[str, str | Path],
    kept: Kept,
) -> Loaded:
    """Loads a module on a device. Raises what `run` raises."""
    config = rt.Config(device=device_of(device, settings, kept))
    try:
        module = rt.VmModule.copy_buffer(config.vm_instance, vmfb)
        modules = [*config.default_vm_modules, *_parameters(config.vm_instance, parameters), module]
        context = rt.VmContext(config.vm_instance, modules)
        kept.check_failure(config.device)
    except (RuntimeError, ValueError, LookupError) as error:  # of IREE's: a parameter's bytes may be too few
        kept.drop()
        why = statuses.explained(str(error))
        raise _failure(device)(f"the program cannot be loaded on device '{device}': {why}") from None
    return Loaded(context, module, config.device, device, kept)


def _parameters(instance: rt.VmInstance, files: Mapping[str, str | Path]) -> list[rt.VmModule]:
    """Returns the module from which a program reads its parameters, if there are any. Raises InputError."""
    if not files:
        return []
    providers = []
    for scope, path in files.items():
        index = rt.ParameterIndex()
        try:
            index.load(str(path))
        except (RuntimeError, ValueError, LookupError, OSError) as error:
            raise InputError(f"cannot read the parameters of scope '{scope}' from {path}: {error}") from None
        providers.append(index.create_provider(scope=scope))
    return [rt.create_io_parameters_module(instance, *providers)]
