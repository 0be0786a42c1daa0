"""Modelled times of AITER's MXFP4 GEMM kernels on an MI355X, for a table of sizes and tiles.

python -m mxcomp.sim.timing --aiter DIR --rows FILE.csv -o predicted.csv

FILE.csv has the columns m,n,k,tile_m,tile_n; modelled_us, low, high (µs) and bound are added to what else it has. Lines
that cannot be estimated are reported and keep these fields empty.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxcomp.errors import MxcompError
from mxcomp.sim.timing import rows as table
from mxcomp.sim.timing.rows import Fault


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m mxcomp.sim.timing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--aiter", type=Path, required=True, metavar="DIR", help="a checkout of ROCm/aiter")
    parser.add_argument("--rows", type=Path, required=True, metavar="FILE.csv", help="sizes and tiles")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.csv", help="where estimates go")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each core)")
    args = parser.parse_args(argv)
    try:
        return _predict(args)
    except MxcompError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _predict(args: argparse.Namespace) -> int:
    rows, faults, names = table.read(args.rows)
    found = list(table.in_parallel(table.estimated, args.aiter, rows, args.jobs))
    table.write(args.output, names, found)
    faults += [result for _, result in found if isinstance(result, Fault)]
    for fault in sorted(faults, key=lambda fault: fault.line):
        print(f"{args.rows}:{fault.line}: {fault.message}", file=sys.stderr)
    modelled = [(row, result) for row, result in found if not isinstance(result, Fault)]
    print(f"{len(modelled)} of {len(modelled) + len(faults)} rows modelled", end="")
    ratios = [result.us / row.us for row, result in modelled if row.us]
    if ratios:
        errors = np.abs(np.array(ratios) - 1)
        print(f"; against measured times: {describe(errors)}", end="")
    print()
    return int(bool(faults))


def describe(errors: NDArray[np.float64]) -> str:
    """Returns the median, mean and 90th percentile of relative errors."""
    median, tenth = np.median(errors), np.quantile(errors, 0.9)
    return f"error median {median:.1%}, mean {errors.mean():.1%}, 90th percentile {tenth:.1%}"


if __name__ == "__main__":
    raise SystemExit(main())
