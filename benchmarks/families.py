"""Models kernels of families that the timing model was not fitted to, and writes what that is worth.

python benchmarks/families.py [--aiter DIR] [--cases cases.pkl] [--write]

Kernels are those of test/sim/corpus/loops, of the kinds that AMD measured on gfx950; times are published ones of such
kernels (benchmarks/data/mi355x_families.csv, from the fastest to the slowest die). Nothing was fitted to them but the
law of the clock, to the clocks of their loops; with --cases, as benchmarks/calibrate.py keeps them, it is fitted
without these too. With --aiter, a checkout of ROCm/aiter, its attention kernels are modelled as well, whose times
HazyResearch/HipKittens measured (mi355x_attention.csv; of their repository, analysis/attn/fwd/benchmark). --write puts
the tables into docs/timing.md, and the band into mxcomp/sim/timing/mi355x.toml.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "sim"))
sys.path.insert(0, str(Path(__file__).parents[1] / "test"))

import aiter_attention
import calibrate
import marked
import replays
from corpus.device import Launch
from corpus.loops import KERNELS, four_waves
from corpus.loops.inputs import PRODUCTS, STEP
from timing_report import describe

from mxcomp.formats import MX_BLOCK
from mxcomp.sim import Device
from mxcomp.sim.timing.chip import Floats
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import Examination, Examiner
from mxcomp.sim.timing.parameters import Parameters, mi355x

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data" / "mi355x_families.csv"
TIMING, DOCS = ROOT / "mxcomp" / "sim" / "timing" / "mi355x.toml", ROOT / "docs" / "timing.md"
ATTENTION = DATA.with_name("mi355x_attention.csv")
_BEGIN, _END = "<!-- families: written by benchmarks/families.py -->", "<!-- end of families -->"
_FIRST, _LAST = "<!-- attention: written by benchmarks/families.py -->", "<!-- end of attention -->"
_MEMORY = 1 << 31
_COVERED = (0.1, 0.9)
_HEAD = 128
"""Elements of a query."""
_NOTHING = 1e-9
"""The number that stands for 0, as fits are of logarithms."""


@dataclass(frozen=True)
class Published:
    """A time, in µs, from the fastest to the slowest of what was published."""

    kernel: str
    m: int
    n: int
    k: int
    least_us: float
    most_us: float

    @property
    def us(self) -> float:
        return (self.least_us * self.most_us) ** 0.5


def published(path: Path = DATA) -> list[Published]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Published(
            row["kernel"],
            int(row["m"]),
            int(row["n"]),
            int(row["k"]),
            float(row["least_us"]),
            float(row["most_us"]),
        )
        for row in rows
    ]


def examined(row: Published) -> Examination:
    """What a launch of that size would do, with a result of two bytes each, as the published ones have."""
    device, examiner = Device("gfx950", memory_bytes=_MEMORY, checks=()), Examiner(asks=False)
    if row.kernel in PRODUCTS:
        code, launch = _product(row, device)
    else:
        code, launch = _attention(row, device)
    kernel = device.load(code).kernels[launch.kernel]
    device.launch(kernel, launch.grid, launch.block, launch.kernarg, dynamic_lds=launch.dynamic_lds, engine=examiner)
    found = examiner.examination
    stored = 2 * row.m * (row.n if row.kernel in PRODUCTS else row.n * _HEAD) / found.workgroups
    unique = found.unique_bytes - found.workgroups * (found.store_bytes - stored)
    return replace(found, store_bytes=stored, unique_bytes=unique)


def _product(row: Published, device: Device) -> tuple[bytes, Launch]:
    stored, kind = PRODUCTS[row.kernel]
    steps = row.k // STEP[kind]
    nbytes = {name: rows * steps * four_waves.ROW for name, rows in (("a", row.m), ("b", row.n))}
    nbytes |= {f"{name}_scale": rows * row.k // MX_BLOCK for name, rows in (("a", row.m), ("b", row.n))}
    nbytes["c"] = 4 * row.m * row.n
    addresses = {name: device.alloc(size).address for name, size in nbytes.items()}
    if not stored:
        return four_waves.code_object(kind), four_waves.launch(addresses, row.m, row.n, steps)
    elements = steps * four_waves.ROW // (2 if kind == "f16" else 1)
    sizes = {"m": row.m, "n": row.n, "k": elements, "scale_pitch": row.m}
    return KERNELS[stored].code, KERNELS[stored].launch(addresses, sizes)


def _attention(row: Published, device: Device) -> tuple[bytes, Launch]:
    """Attention of `m` queries to `k` keys in `n` heads: code and launch."""
    nbytes = {name: 2 * _HEAD * rows * row.n for name, rows in zip("qkvo", (row.m, row.k, row.k, row.m), strict=True)}
    addresses = {name: device.alloc(size).address for name, size in nbytes.items()}
    sizes = {"queries": row.m, "heads": row.n, "keys": row.k, "scale": 0.1}
    return KERNELS["attention"].code, KERNELS["attention"].launch(addresses, sizes)


def without_their_clocks(cases: Sequence[replays.Case]) -> Parameters:
    """A fit to AITER's kernels alone. None of these has 32×32×64: what that takes beyond is unknown then."""
    model = calibrate.Model(cases)
    model.clocks = replace(model.clocks, weight=0.0 * model.clocks.weight)
    return model.fit(mi355x().replaced(power_wide=_NOTHING))


FROM_ELSEWHERE = {
    "launch_us": 2.0, "dispatch_us": _NOTHING, "cold_latency": 1000.0, "cu_bytes": 45.0, "fabric_bytes": 6298.0,
    "power": 1.0,
}  # fmt: skip
"""The numbers that are fitted to AITER's rows otherwise, as others measured them: latency and bytes to a CU are those
of ROCm/gfx950-gluon-tutorials, docs/tcp_bound_tile_model.md, and 15.1 TB/s of L2 that of ROCm/rocm-libraries,
shared/origami. A launch is assumed."""


def without_aiter(cases: Sequence[replays.Case]) -> str:
    """What AITER's rows are predicted by where none of them was seen: clocks of loops are all that is fitted."""
    model = calibrate.Model(cases)
    rows = len(model.measured)
    with np.errstate(all="ignore"):  # of steps of the fit that nothing holds back
        us = model.us(model.fit(mi355x().replaced(**FROM_ELSEWHERE), np.zeros(rows)))
    return f"AITER's {rows} rows, by a clock that none of them was fitted to: {describe(us / model.measured)}."


def table(rows: Sequence[Published], ratios: Floats) -> str:
    """The Markdown table of modelled times, by each clock, beside published ones."""
    lines = ["| kernel | size | published µs | modelled | without their clocks |", "|---|---|---|---|---|"]
    for row, ratio in zip(rows, ratios, strict=True):
        least, most = row.least_us, row.most_us
        said = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        us = " | ".join(f"{one * row.us:.4g}, {one - 1:+.1%}" for one in ratio)
        lines.append(f"| {row.kernel} | {row.m}×{row.n}×{row.k} | {said} | {us} |")
    errors = np.abs(ratios - 1)
    lines.append(f"\nMedian error {', '.join(f'{each:.1%}' for each in np.median(errors, axis=0))}.")
    return "\n".join(lines)


def attention(checkout: Path) -> str:
    """The Markdown table of AITER's attention of bf16, heads of 128, beside measured times."""
    lines = ["| batch | heads | of keys | length | causal | measured µs | modelled |", "|---|---|---|---|---|---|---|"]
    errors = []
    with ATTENTION.open(newline="") as file:
        for row in csv.DictReader(file):
            batch, heads, key_heads, length = (int(row[name]) for name in ("batch", "heads", "key_heads", "length"))
            us, is_causal = float(row["us"]), row["causal"] == "1"
            modelled = aiter_attention.bf16_us(checkout, batch, heads, key_heads, length, is_causal)
            errors.append(modelled / us - 1)
            shape = f"{batch} | {heads} | {key_heads} | {length}"
            lines.append(
                f"| {shape} | {'yes' if is_causal else 'no'} | {us:,.0f} | {modelled:,.0f}, {errors[-1]:+.1%} |"
            )
    return "\n".join([*lines, f"\nMedian error {np.median(np.abs(errors)):.1%}, bias {np.mean(errors):+.1%}."])


def write(text: str, ratios: Floats) -> None:
    DOCS.write_text(marked.put(DOCS.read_text(), _BEGIN, _END, text))
    low = np.quantile(1 / ratios, _COVERED[0], method="lower")
    high = np.quantile(1 / ratios, _COVERED[1], method="higher")
    band = re.compile(r"(?<=\[unseen\]\n)low = .*\nhigh = .*\n")
    changed, count = band.subn(f"low = {low:.4f}\nhigh = {high:.4f}\n", TIMING.read_text())
    assert count == 1
    TIMING.write_text(changed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="a checkout of ROCm/aiter: its attention, too")
    parser.add_argument("--cases", type=Path, metavar="FILE", help="what calibrate.py keeps: fit without their clocks")
    parser.add_argument("--write", action="store_true", help="write docs/timing.md and the band")
    args = parser.parse_args()
    rows = published()
    works = [examined(row) for row in rows]
    cases = replays.load(args.cases, None, calibrate.DATA) if args.cases else []
    clocks = [mi355x(), *([without_their_clocks(cases)] if cases else [])]
    ratios = np.array([[estimate(work, p).us / row.us for p in clocks] for row, work in zip(rows, works, strict=True)])
    tables = table(rows, ratios) + (f"\n\n{without_aiter(cases)}" if cases else "")
    print(tables)
    if args.aiter:
        text = attention(args.aiter)
        print(text)
        if args.write:
            DOCS.write_text(marked.put(DOCS.read_text(), _FIRST, _LAST, text))
    if args.write:
        write(tables, ratios)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
