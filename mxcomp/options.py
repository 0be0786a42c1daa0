"""What a compilation is asked to do: one frozen value, handed to every pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.target import Target, get_target

AUTO, FASTEST, NONE = "auto", "fastest", "none"
"""Which ukernels to take: the match of highest benefit, that of the shortest modelled time, or none."""


@dataclass(frozen=True)
class Options:
    """`ukernels` is AUTO, FASTEST, NONE, or the name of one ukernel.

    `reference` replaces the inner tile by its mathematical meaning, for targets without scaled MFMA.
    `tuned` is a table that says the ukernel of some problems (`mxcomp.selection.tuned`), whatever would be chosen.
    With `packed_parameters`, operands that are parameters are read in their packed layout (see `mxcomp.weights`).
    `read_through_ids`: kernels find matrices by expert ids; else these are gathered first, as a stock iree-compile,
    which is given dispatches before mxcomp-fold-gathers, knows it.
    """

    target: Target
    data_tiling: bool = True
    ukernels: str = "auto"
    ukernel_dirs: tuple[Path, ...] = ()
    reference: bool = False
    packed_parameters: bool = False
    tuned: Path | None = None
    read_through_ids: bool = True

    @staticmethod
    def make(
        target: str = "gfx950",
        data_tiling: bool | str = True,
        ukernels: str = "auto",
        ukernel_dirs: tuple[str | Path, ...] = (),
        reference: bool = False,
        packed_parameters: bool = False,
        tuned: str | Path | None = None,
    ) -> Options:
        """Options from user input. Raises TargetError or InputError."""
        if isinstance(data_tiling, str):
            if data_tiling not in ("on", "off"):
                raise InputError(f"--data-tiling={data_tiling}: expected on or off")
            data_tiling = data_tiling == "on"
        if not ukernels:
            raise InputError("--ukernels is empty: expected auto, fastest, none or a ukernel's name")
        dirs = tuple(map(Path, ukernel_dirs))
        table = None if tuned is None else Path(tuned)
        options = Options(get_target(target), data_tiling, ukernels, dirs, reference, packed_parameters, table)
        options.check()
        return options

    def check(self) -> None:
        """Raises InputError for options that contradict each other."""
        if self.tuned is None:
            return
        if not self.data_tiling:
            raise InputError(f"--tuned={self.tuned} is about ukernels on packed operands: expected --data-tiling=on")
        if self.ukernels not in (AUTO, FASTEST):
            raise InputError(f"--tuned={self.tuned} and --ukernels={self.ukernels}: expected {AUTO} or {FASTEST}")
