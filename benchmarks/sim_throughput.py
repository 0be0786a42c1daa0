"""Speed of the simulator's two engines, side by side in one run.

    engines   wave instructions per second of each engine on one workgroup of the ukernel m128_n256_k256 and of the
              kernel that packs its left operand, with all checks and with none, and the ratio of the engines
    program   wall seconds of the 1024 × 1024 × 1024 MXFP4 product, five dispatches: the first time in this process, as
              kernels may have to be compiled, and again; and the process's peak memory

--check holds the ratio on the matmul to at least 20, and the program, again and with all checks, to 5 seconds.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "sim"))

from corpus.device import Machine
from corpus.iree import COMPILERS, scaled_matmul
from corpus.iree.program import Program
from corpus.operands import Operand, check_product, operand

from mxcomp.sim import CHECKS, LaunchStats

LEAST_RATIO, MOST_SECONDS = 20, 5.0
CHOICES = {"all checks": CHECKS, "no checks": ()}


def product(m: int, n: int, k: int) -> tuple[Program, Operand, Operand]:
    """The compiled product, and random operands."""
    rng = np.random.default_rng(1)
    program = COMPILERS["m128_n256_k256"](scaled_matmul(m, n, k))
    return program, operand(rng, "e2m1", m, k), operand(rng, "e2m1", n, k)


def run(program: Program, a: Operand, b: Operand, machine: Machine) -> tuple[np.ndarray, list[LaunchStats], float]:
    """The product, counters of all dispatches, and wall seconds."""
    m, n = len(a.values), len(b.values)
    start = time.perf_counter()
    buffers = program.upload(machine, [a.packed, b.packed, a.scales, b.scales])
    stats = machine.launch(program.code, program.launches([buffer.address for buffer in buffers]))
    c = machine.read(buffers[program.results[0].buffer], np.empty((m, n), np.float32))
    return c, stats, time.perf_counter() - start


def compare_engines(repeat: int) -> tuple[Table, float]:
    """Instructions per second, and the least ratio on the matmul."""
    table = Table(title="wave instructions per second", title_justify="left")
    for column in ("kernel", "checks", "numpy", "fast", "ratio"):
        table.add_column(column, justify="left" if column in ("kernel", "checks") else "right")
    program, a, b = product(128, 256, 4096)
    ratios = []
    for label, checks in CHOICES.items():
        best: dict[str, list[float]] = {}
        for engine in ("numpy", "fast"):
            machine = Machine(engine, checks=checks)
            rounds = [run(program, a, b, machine)[1] for _ in range(repeat + 1)][1:]
            best[engine] = [
                max(stats.counters["instructions"] / stats.seconds for stats in launches)
                for launches in zip(*rounds, strict=True)
            ]
        for name, index in (("matmul, 1 workgroup", -1), ("packing of LHS", 0)):
            speeds = best["numpy"][index], best["fast"][index]
            table.add_row(name, label, *(f"{speed:,.0f}" for speed in speeds), f"{speeds[1] / speeds[0]:.0f}")
        ratios.append(best["fast"][-1] / best["numpy"][-1])
    return table, min(ratios)


def run_program(repeat: int) -> tuple[Table, float]:
    """Times of the fast engine, and the best one with all checks, not the first."""
    table = Table(title="1024 × 1024 × 1024, five dispatches, fast engine", title_justify="left")
    for column in ("checks", "first, s", "again, s", "wave instructions", "MFMA", "peak memory, MiB"):
        table.add_column(column, justify="left" if column == "checks" else "right")
    program, a, b = product(1024, 1024, 1024)
    again: dict[str, float] = {}
    for label, checks in CHOICES.items():
        machine = Machine("fast", checks=checks)
        rounds = [run(program, a, b, machine) for _ in range(repeat + 1)]
        check_product(rounds[0][0], a.values, b.values)
        again[label] = min(seconds for _, _, seconds in rounds[1:])
        counts = [sum(stats.counters[event] for stats in rounds[0][1]) for event in ("instructions", "mfma")]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        numbers = (f"{rounds[0][2]:.2f}", f"{again[label]:.2f}", *(f"{count:,}" for count in counts), f"{peak:.0f}")
        table.add_row(label, *numbers)
    return table, again["all checks"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is missed")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, after the first (default: 3)")
    args = parser.parse_args()

    console = Console(width=None if sys.stdout.isatty() else 110)
    table, seconds = run_program(args.repeat)
    console.print(table)
    table, ratio = compare_engines(args.repeat)
    console.print(table)
    print(f"fast / numpy on the matmul: {ratio:.0f} at least, limit {LEAST_RATIO}")
    print(f"program with all checks: {seconds:.2f} s, limit {MOST_SECONDS}")
    return int(args.check and (ratio < LEAST_RATIO or seconds > MOST_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
