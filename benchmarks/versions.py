"""What a dynamic M costs, modelled: times of the kernels that are taken for it, over those of the best one for each M.

python benchmarks/versions.py            # a table for docs/howto/tuning.md
"""

from __future__ import annotations

from statistics import geometric_mean

from iree.compiler import ir

from mxcomp.layout.problem import Problem
from mxcomp.options import Options
from mxcomp.plans.multi_m import MultiM
from mxcomp.registry import Registry
from mxcomp.selection import versions
from mxcomp.selection.ranking import Candidate, fastest
from mxcomp.selection.versions import Choice, Ranked

TYPES = ("f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32")
LAYERS = (
    (1280, 8192), (8192, 1024), (10240, 8192), (57344, 8192),
    (7168, 2048), (512, 7168), (2112, 7168), (24576, 1536), (16384, 16384),
)  # fmt: skip
"""N × K of published layers: of Llama 3 70B, DeepSeek V3, and a square one."""
ROWS = (1, 8, 16, 17, 32, 64, 65, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
RESULT_BYTES = 2


def main() -> int:
    options = Options.make()
    with ir.Context():
        registry = Registry(options.target)
    one: dict[int, list[float]] = {m: [] for m in ROWS}
    several: dict[int, list[float]] = {m: [] for m in ROWS}
    for n, k in LAYERS:
        problem = Problem(None, n, k, TYPES)
        ranked = fastest(problem, registry, RESULT_BYTES)
        found = versions.choose(Ranked(problem, ranked, RESULT_BYTES))
        if found is not None and found.us >= (1 - MultiM.least_gain) * found.alone_us:
            found = None
        for m in ROWS:
            best = fastest(Problem(m, n, k, TYPES), registry, RESULT_BYTES)
            least = best[0].us
            one[m].append(_of(best, ranked[0].ukernel.name) / least)
            several[m].append(one[m][-1] if found is None else _chosen(found, n, k, m, registry) / least)
    print("| M | one kernel for all M: mean, worst | kernels by ranges: mean, worst |\n|---|---|---|")
    for m in ROWS:
        print(f"| {m} | {_text(one[m])} | {_text(several[m])} |")
    print(f"| all | {_text([x for m in ROWS for x in one[m]])} | {_text([x for m in ROWS for x in several[m]])} |")
    return 0


def _of(candidates: tuple[Candidate, ...], name: str) -> float:
    return next(each.us for each in candidates if each.ukernel.name == name)


def _chosen(found: Choice, n: int, k: int, m: int, registry: Registry) -> float:
    """µs of the version for M, with the rows that it is padded to."""
    ukernel = next(each.ukernel for most, each in found.kernels if most is None or m <= most)
    unit = ukernel.tile[0]
    padded = Problem(-(-m // unit) * unit, n, k, TYPES)
    return _of(fastest(padded, registry, RESULT_BYTES), ukernel.name)


def _text(ratios: list[float]) -> str:
    return f"{geometric_mean(ratios):.2f}, {max(ratios):.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
