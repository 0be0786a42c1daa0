"""Modelled times of AITER's MXFP4 GEMM kernels on an MI355X, for a table of sizes and tiles.

python benchmarks/aiter_times.py --aiter DIR --rows FILE.csv -o predicted.csv

FILE.csv has the columns m,n,k,tile_m,tile_n; modelled_us, low, high (µs) and bound are added to what else it has. Lines
that cannot be estimated are reported and keep these fields empty.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxcomp.errors import MxcompError
from mxcomp.profiling import Estimate
from mxcomp.sim.timing import rows as table
from mxcomp.sim.timing.rows import Row
from mxcomp.support import files
from mxcomp.support.lines import Fault

ADDED = ("modelled_us", "low", "high", "bound")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    write(args.output, names, found)
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


def write(path: Path, names: Sequence[str], rows: Iterable[tuple[Row, Estimate | Fault]]) -> None:
    """Writes the table with estimates, in the order of its lines; fields of faulty ones stay empty.

    Raises InputError where it cannot be written.
    """
    text = StringIO(newline="")
    result = csv.DictWriter(text, [*(name for name in names if name not in ADDED), *ADDED], extrasaction="ignore")
    result.writeheader()
    for row, found in sorted(rows, key=lambda pair: pair[0].line):
        added = ("", "", "", "") if isinstance(found, Fault) else _added(found)
        result.writerow({**row.fields, **dict(zip(ADDED, added, strict=True))})
    files.write({path: text.getvalue().encode()})


def _added(found: Estimate) -> tuple[str, ...]:
    return (*(f"{value:.4g}" for value in (found.us, found.low, found.high)), found.bound)


def describe(errors: NDArray[np.float64]) -> str:
    """Returns the median, mean and 90th percentile of relative errors."""
    median, tenth = np.median(errors), np.quantile(errors, 0.9)
    return f"error median {median:.1%}, mean {errors.mean():.1%}, 90th percentile {tenth:.1%}"


if __name__ == "__main__":
    raise SystemExit(main())
