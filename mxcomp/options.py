"""The options of a compilation: one frozen value, passed to every pass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.target import DEFAULT, Target, get_target

FASTEST, BENEFIT, NONE = "fastest", "benefit", "none"
"""The ways to choose ukernels: by the shortest modelled time, by the highest benefit of a match, or not at all."""

AUTO, ON, OFF = "auto", "on", "off"
"""Whether matmuls quantise operands or results: where that is modelled to be faster, wherever they can, or never."""

STRICT = "MXCOMP_STRICT"
"""The environment variable that, with any value, makes compilations strict by default."""


@dataclass(frozen=True)
class Options:
    """`ukernels` is FASTEST, BENEFIT, NONE, or the name of one ukernel.

    `reference` replaces the inner tile by its mathematical meaning, for targets without scaled MFMA.
    `tuned` is a table that says the ukernel of some problems (`mxcomp.plans.tuned`), whatever would be chosen.
    With `versions`, a dynamic M may have kernels by ranges.
    `fuse_quantisers` is AUTO, ON or OFF: whether quantisers are computed in the dispatches of matmuls, an LHS where it
    is multiplied, a result in its tile. AUTO goes by modelled times; with BENEFIT, which has none, results are.
    With `packed_parameters`, operands that are parameters are read in their packed layout (see `mxcomp.weights`).
    `reads_in_place`: kernels find matrices by expert ids, and LHS or RHS in rows; else the former are gathered first,
    and the latter packed, as a stock iree-compile is given dispatches before mxcomp-fold-gathers and mxcomp-fold-rows.
    Nor does it unmask stores.
    `strict`: what cannot be compiled as asked for is an error (see `mxcomp.fallback`).
    """

    target: Target
    data_tiling: bool = True
    ukernels: str = FASTEST
    ukernel_dirs: tuple[Path, ...] = ()
    reference: bool = False
    packed_parameters: bool = False
    tuned: Path | None = None
    versions: bool = True
    fuse_quantisers: str = AUTO
    reads_in_place: bool = True
    strict: bool = False

    @property
    def has_kernels(self) -> bool:
        """Whether kernels of ours may compute other operations than scaled matmuls."""
        return self.reads_in_place and not self.reference and self.ukernels != NONE

    @staticmethod
    def make(
        target: str = DEFAULT,
        data_tiling: bool | str = True,
        ukernels: str = FASTEST,
        ukernel_dirs: tuple[str | Path, ...] = (),
        reference: bool = False,
        packed_parameters: bool = False,
        tuned: str | Path | None = None,
        versions: bool | str = True,
        fuse_quantisers: str = AUTO,
        strict: bool = False,
    ) -> Options:
        """Returns options from user input. Raises TargetError or InputError."""
        switches = {"data-tiling": data_tiling, "versions": versions}
        is_on = {name: _is_on(name, value) for name, value in switches.items()}
        if not ukernels:
            raise InputError("--ukernels is empty: expected fastest, benefit, none or a ukernel's name")
        if fuse_quantisers not in (AUTO, ON, OFF):
            raise InputError(f"--fuse-quantisers={fuse_quantisers}: expected {AUTO}, {ON} or {OFF}")
        dirs = tuple(map(Path, ukernel_dirs))
        table = None if tuned is None else Path(tuned)
        options = Options(
            get_target(target), is_on["data-tiling"], ukernels, dirs, reference, packed_parameters, table,
            is_on["versions"], fuse_quantisers, strict=strict or STRICT in os.environ,
        )  # fmt: skip
        options.check()
        return options

    def check(self) -> None:
        """Raises InputError for options that contradict each other."""
        if self.tuned is None:
            return
        if not self.data_tiling:
            raise InputError(f"--tuned={self.tuned} is about ukernels on packed operands: expected --data-tiling=on")
        if self.ukernels not in (FASTEST, BENEFIT):
            raise InputError(f"--tuned={self.tuned} and --ukernels={self.ukernels}: expected {FASTEST} or {BENEFIT}")


def _is_on(name: str, value: bool | str) -> bool:
    if value not in (True, False, "on", "off"):
        raise InputError(f"--{name}={value}: expected on or off")
    return value in (True, "on")
