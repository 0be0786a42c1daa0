"""A program that stays loaded between calls, with its parameters and its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from mxcomp.errors import InputError
from mxcomp.run import runtime
from mxcomp.run.devices import Kept, device_of


class Resident:
    """A loaded program, to be called many times; its globals, such as a cache, keep their values between calls.

        with program.session(parameters={"model": "weights.irpa"}) as s:
            (y,) = s.main(x)
            (z,) = s.run(x, function="main")  # the same, for any name

    Arguments are those of `mxcomp.run.runtime.run`, and hold for every call. Calls raise what that raises. A call whose
    arguments are refused leaves the program as it was. After one that has failed otherwise the next loads the program
    anew, on a new device: what it had kept is gone. To be called by one thread at a time.
    """

    def __init__(
        self,
        vmfb: bytes,
        device: str = "sim",
        engine: str | None = None,
        checks: str | Sequence[str] | None = None,
        schedule: str | None = None,
        seed: int | None = None,
        parameters: Mapping[str, str | Path] | None = None,
        profile: str | Path | None = None,
    ) -> None:
        self._settings = runtime.settings(engine, checks, schedule, seed, profile)
        self._vmfb, self._device, self._parameters = vmfb, device, dict(parameters or {})
        self._kept = Kept()
        self._program: runtime.Loaded | None = None
        self._is_open = True
        self.functions: tuple[str, ...] = self._on(lambda: tuple(self._loaded().functions()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases the program, its parameters and the device; calls raise InputError from now on."""
        self._is_open, self._program, self._kept.device = False, None, None

    def run(self, *arrays: np.ndarray, function: str | None = None) -> list[np.ndarray]:
        """Calls a function, by default the only one, and returns its results."""
        if not self._is_open:
            raise InputError("this session is closed: expected calls inside of its `with`")
        return self._on(lambda: self._loaded().call(function, arrays))

    def __getattr__(self, name: str) -> Callable[..., list[np.ndarray]]:
        if name.startswith("_") or name not in self.functions:
            expected = "" if name.startswith("_") else f": expected {', '.join(self.functions)}"
            raise AttributeError(f"no function '{name}'{expected}")
        return lambda *arrays: self.run(*arrays, function=name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.functions})

    def _on(self, work: Callable[[], Any]) -> Any:
        return runtime.on(self._device, lambda _: work(), self._kept)

    def _loaded(self) -> runtime.Loaded:
        """Returns the program on its device, with the settings applied again, as other calls may have changed them."""
        before = self._kept.device
        if self._program is None or before is None:
            self._program = runtime.load(self._vmfb, self._device, self._settings, self._parameters, self._kept)
        else:
            device_of(self._device, self._settings, self._kept)
        return self._program
