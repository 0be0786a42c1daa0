"""Compile times of mxcomp beside those of a stock iree-compile, on the same files in one run.

Compared are

    in process   mxcomp.compile(path) in this process, warm: imports done, one compilation made before
    command      mxcomp-compile, a new process each time

with

    data-tiled   iree-compile with IREE's own data tiling and ukernels: the same kernels in kind and number,
                 four that pack operands and one that multiplies, so the same work
    default      iree-compile as it comes: one kernel for each matmul

Runs alternate, and the best of each counts. Ratios are of CPU seconds, in which other load on the machine shows least;
wall seconds are given beside them. --check holds `in process` to 1.25 times `data-tiled`.

--decoder=LAYERS measures a Llama with so many layers (decoder.py) instead, whose weights are parameters:

    packed       mxcomp.compile(path, packed_parameters=True): what mxcomp.torch.compile does
    in process   without: two more dispatches for each weight, which pack it when the program is loaded
    default      iree-compile as it comes; with data tiling IREE 3.13 crashes on it

There --check holds `packed` to 1.2 times `default`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import decoder
from iree.compiler import ir
from iree.compiler.dialects import func
from rich.console import Console
from rich.table import Table

import mxcomp
import mxcomp.ir as mx
from mxcomp.formats import E2M1, MX_BLOCK
from mxcomp.target import get_target

LIMIT, DECODER_LIMIT = 1.25, 1.2
STOCK_WAYS = ("data-tiled", "default")
PROGRAMS = Path(sys.executable).parent
STOCK = [PROGRAMS / "iree-compile", *get_target("gfx950").iree_flags]
DATA_TILED = [
    "--iree-opt-data-tiling",
    "--iree-rocm-encoding-layout-resolver=data-tiling",
    "--iree-rocm-enable-tensor-ukernels",
]
Size = tuple[int, int, int]
ONE: list[Size] = [(1024, 1024, 1024)]
MANY: list[Size] = [(64 * (1 + i % 8) + i, 128 * (1 + i // 4), 256 * (1 + i % 5)) for i in range(32)]
"""32 shapes, no two alike, of whole tiles and of parts."""


def module(sizes: Sequence[Size]) -> str:
    """MLIR with a function of one scaled matmul for each M, N, K."""
    with ir.Context(), ir.Location.unknown():
        result = ir.Module.create()
        for index, size in enumerate(sizes):
            with ir.InsertionPoint(result.body):
                _function(f"matmul_{index}", size)
        return str(result)


def _function(name: str, size: Size) -> None:
    m, n, k = size
    shapes = ((m, k // 2), (n, k // 2), (m, k // MX_BLOCK), (n, k // MX_BLOCK))
    stored = [ir.Type.parse(f"tensor<{rows}x{columns}xi8>") for rows, columns in shapes]

    def body(lhs: ir.Value, rhs: ir.Value, lhs_scale: ir.Value, rhs_scale: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.operand(lhs, lhs_scale, E2M1), mx.operand(rhs, rhs_scale, E2M1))

    func.FuncOp.from_py_func(*stored, name=name)(body)


Times = tuple[float, float]
"""Wall and CPU seconds."""


def timed(run: Callable[[], object]) -> Times:
    """Times of a call, child processes included."""
    wall, cpu = time.perf_counter(), _cpu()
    run()
    return time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


Ways = dict[str, Callable[[Path], object]]


def command(*arguments: str | Path) -> Callable[[Path], object]:
    return lambda path: subprocess.run([*arguments, path, "-o", os.devnull], check=True)


MATMULS: Ways = {
    "in process": mxcomp.compile,
    "command": command(PROGRAMS / "mxcomp-compile"),
    "data-tiled": command(*STOCK, *DATA_TILED),
    "default": command(*STOCK),
}
DECODER: Ways = {
    "packed": lambda path: mxcomp.compile(path, packed_parameters=True),
    "in process": mxcomp.compile,
    "default": command(*STOCK),
}


def measure(path: Path, repeat: int, ways: Ways) -> dict[str, Times]:
    """The best times of each way to compile `path`."""
    next(iter(ways.values()))(path)
    rounds = [{name: timed(partial(run, path)) for name, run in ways.items()} for _ in range(repeat)]
    return {name: (min(r[name][0] for r in rounds), min(r[name][1] for r in rounds)) for name in ways}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help=f"exit with 1 above a ratio of {LIMIT}")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--decoder", type=int, metavar="LAYERS", help="a Llama with so many layers, instead of matmuls")
    args = parser.parse_args()

    if args.decoder is None:
        subjects = [("1 matmul", module(ONE), MATMULS), (f"{len(MANY)} matmuls", module(MANY), MATMULS)]
        held, limit = ("in process", "data-tiled"), LIMIT
    else:
        subjects = [(f"Llama, {args.decoder} layers", decoder.decode_step(args.decoder), DECODER)]
        held, limit = ("packed", "default"), DECODER_LIMIT
    table = Table(title="compile times for gfx950, CPU seconds (wall seconds)", title_justify="left")
    for column in ("module", "ours", "", "stock iree-compile", "", "ratio"):
        table.add_column(column, justify="left" if column in ("module", "ours", "stock iree-compile") else "right")
    checked: list[float] = []
    for label, text, ways in subjects:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "model.mlir"
            path.write_text(text)
            times = measure(path, args.repeat, ways)
        for pair in product((w for w in ways if w not in STOCK_WAYS), (w for w in ways if w in STOCK_WAYS)):
            ratio = times[pair[0]][1] / times[pair[1]][1]
            checked += [ratio] if pair == held else []
            seconds = [f"{cpu:.2f} ({wall:.2f})" for wall, cpu in map(times.__getitem__, pair)]
            table.add_row(label, pair[0], seconds[0], pair[1], seconds[1], f"{ratio:.2f}")
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    worst = max(checked)
    print(f"{' / '.join(held)}: {worst:.2f} at worst, limit {limit}")
    return int(args.check and worst > limit)


if __name__ == "__main__":
    sys.exit(main())
