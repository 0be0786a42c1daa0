"""Makes the tables of modelled figures in README.md, docs/ and ukernels/README.md anew, by the clock as it is.

python benchmarks/pages.py --aiter DIR [--keep FOLDER] [--only NAME …]

DIR is a checkout of ROCm/aiter. FOLDER keeps what mxcomp-bench found, to go on from there. Tables stand between marks
in the pages; what a table is called there is what --only takes. Ten minutes on two cores, and twice as many
for docs/models.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import marked
from iree.compiler import ir

from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.measuring import kernels
from mxcomp.measuring.models import KINDS, TOKEN
from mxcomp.options import FASTEST, Options
from mxcomp.plans import Plan
from mxcomp.plans.context import Context, Site
from mxcomp.plans.plan import Proposal
from mxcomp.plans.weight_only import WeightOnly
from mxcomp.registry import Registry
from mxcomp.selection import quantising as selected
from mxcomp.selection import times
from mxcomp.selection.ranking import fastest
from mxcomp.target import DEFAULT, get_target
from mxcomp.ukernels import quantising

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data"
Entries = list[dict[str, Any]]

_RANGES = ((1, 16), (17, 64), (65, 256), (257, 1024), (1025, 4096), (4097, 1 << 30))
_SIZES = (
    "1x16384x16384", "16x8192x8192", "64x8192x8192", "512x8192x7168", "2048x8192x8192", "8192x8192x8192",
    "10000x16384x16384",
)  # fmt: skip
_SQUARES = ("2048x8192x8192", "4096x4096x4096", "8192x8192x8192", "16384x16384x16384")
_TYPES = (("fp8", "fp8"), ("fp8", "fp6"), ("fp6", "fp6"), ("fp6", "fp4"), ("fp8", "fp4"), ("fp4", "fp4"))
_ELEMENTS = {"fp4": "f4E2M1FN", "fp6": "f6E2M3FN", "fp8": "f8E4M3FN"}
_SEED = "10000x16384x16384"
_FOUR = ("gptoss", "dsv3", "kimik2", "qwen3")
_MODELS = {
    "gptoss": "GPT-OSS", "dsv3": "DeepSeek V3", "kimik2": "Kimi K2", "qwen3": "Qwen 3.5", "dsv4": "DeepSeek V4",
    "glm5": "GLM 5", "minimax": "MiniMax", "kimik3": "Kimi K3",
}  # fmt: skip
_DECODERS = (
    ("llama3-8b", "1,16", "1024,8192"), ("llama3-70b", "1,16,64", "1024"), ("llama3-405b", "1", "1024"),
    ("gpt-oss-20b", "1,16,64", "1024"), ("gpt-oss-120b", "1,16", "1024"), ("qwen3-30b-a3b", "1,16,64", "1024"),
    ("deepseek-v3", "1", "1024"),
)  # fmt: skip
"""The models of docs/models.md, with their --batch and --context. Each takes minutes; DeepSeek V3 takes 7 GB."""
_TOKENS = ((1, 4), (8, 32), (64, 256), (512, 2048), (4096, 16384), (16385, 1 << 30))
_LAYERS = ((16384, 16384), (8192, 8192), (7168, 8192), (8192, 3584), (8192, 1024), (5120, 2880), (1280, 8192))
"""N and K: of Llama 3 70B at 8 ranks, and others."""
_BITS, _BYTES = 16, 2
"""Bits of an activation, and bytes of an element of a result."""
_LARGE = (
    "mx_f4E2M1FN_f4E2M1FN_f32_m256_n256_k512", "mx_f4E2M1FN_f4E2M1FN_f32_m256_n256_k512_intrawave",
    "mx_f4E2M1FN_f4E2M1FN_f32_m320_n256_k512_intrawave", "mx_f8E4M3FN_f8E4M3FN_f32_m256_n256_k512_intrawave",
)  # fmt: skip
_ROWS = ("1", "8", "16", "64", "65", "128", "512", "2048", "8192")


class Bench:
    """Runs mxcomp-bench, once for what a folder keeps."""

    def __init__(self, folder: Path, aiter: Path) -> None:
        self.folder, self._aiter = folder, aiter

    def __call__(self, name: str, *args: str, peer: bool = False) -> Entries:
        path = self.folder / f"{name}.json"
        command = [sys.executable, "-m", "mxcomp.tools.bench", *args, f"--json={path}"]
        subprocess.run([*command, *([f"--aiter={self._aiter}"] if peer else [])], check=True, stdout=subprocess.DEVNULL)
        found: Entries = json.loads(path.read_text())
        return found


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def summary(ratios: Sequence[float]) -> tuple[str, str, str]:
    return (
        f"{geometric_mean(ratios):.2f}",
        f"{sum(ratio >= 1 for ratio in ratios) / len(ratios):.0%}",
        f"{min(ratios):.2f}",
    )


def _span(low: int, high: int) -> str:
    return f"{low} to {high}" if high < 1 << 30 else "more"


def aiter(bench: Bench) -> str:
    """The speed of what is chosen beside AITER's kernels, in the same model."""
    ratios = _ratios(bench)
    found, least, worst = summary([ratio for _, ratio in ratios])
    rows = []
    for low, high in _RANGES:
        inside = [ratio for m, ratio in ratios if low <= m <= high]
        rows.append((_span(low, high), len(inside), *summary(inside)))
    heads = ("M", "sizes", "AITER's µs / ours, geometric mean", "at least as fast", "worst")
    return (
        f"What is chosen is **{found} × as fast** (geometric mean of {len(ratios)}), at least as fast in {least}, and "
        f"{worst} × at worst.\n\n{table(heads, rows)}"
    )


def _ratios(bench: Bench) -> list[tuple[int, float]]:
    """M of AITER's sizes, and AITER's time over ours."""
    entries = bench("aiter", f"--rows={DATA / 'mi355x_mxfp4_gemm.csv'}", peer=True)
    return [(each["m"], each["peer_us"] / each["ours_us"]) for each in entries if each["peer_us"]]


def sizes(bench: Bench) -> str:
    """Some sizes, and what is chosen."""
    entries = bench("sizes", *_SIZES)
    rows = []
    for each in entries:
        band = f"{each['low']:.4g} to {each['high']:.4g}"
        rows.append((_shape(each), _kernel(each), f"{each['ours_us']:.4g}", band, each["bound"]))
    return table(("M × N × K", "ukernel", "modelled µs", "80 % between", "bound by"), rows)


def _shape(each: dict[str, Any]) -> str:
    return f"{each['m']} × {each['n']} × {each['k']}"


def _kernel(each: dict[str, Any]) -> str:
    tile = re.sub(r"^mx_\w+?_f32_", "", each["kernel"])
    return tile if each["parts"] == 1 else f"{tile}, K in {each['parts']}"


def bits(bench: Bench) -> str:
    """TFLOP/s of types."""
    columns = [_speeds(bench, pair) for pair in _TYPES]
    rows = [(size.replace("x", " × "), *row) for size, row in zip(_SQUARES, zip(*columns, strict=True), strict=True)]
    return table(("M × N × K", *(" × ".join(pair) for pair in _TYPES)), rows)


def configurations(bench: Bench) -> str:
    """Every dispatch of the seed GEMM, with both results."""
    parts = []
    for result in ("f32", "bf16"):
        name, records = f"configurations_{result}", _records(bench, result)
        ways = list(dict.fromkeys(each["configuration"] for each in records))
        rows = []
        for part in dict.fromkeys(each["part"] for each in records):
            found = [each for each in records if each["part"] == part]
            us = [sum(each["us"] for each in found if each["configuration"] == way) for way in ways]
            rows.append((part, *(f"{each:.1f}" if each else "" for each in us)))
        shutil.copy(bench.folder / result / f"{_SEED}-bars.png", ROOT / "docs" / f"{name}.png")
        parts.append(f"Results in {result}, modelled µs:\n\n{table(('', *ways), rows)}")
    return "\n\n".join(parts)


def _speeds(bench: Bench, pair: tuple[str, str]) -> list[str]:
    """TFLOP/s of the squares."""
    entries = bench("bits_" + "_".join(pair), *_SQUARES, "--types", *(_ELEMENTS[kind] for kind in pair))
    return [f"{2e-6 * each['m'] * each['n'] * each['k'] / each['ours_us']:.0f}" for each in entries]


def _records(bench: Bench, result: str) -> Entries:
    what = ("--configurations", _SEED, f"--result={result}", f"--picture={bench.folder / result}")
    return bench(f"configurations_{result}", *what, peer=True)


def layers(bench: Bench) -> str:
    """MoE layers, beside published times."""
    entries = _layers(bench)
    rows, four = [], [each for each in entries if each["model"] in _FOUR]
    groups = [("**" + ", ".join(_MODELS[model] for model in _FOUR) + "**", four)]
    for model, title in _MODELS.items():
        groups.append((title, [each for each in entries if each["model"] == model]))
    for name, inside in groups:
        rows.append((name, len(inside), *_times(summary([_ratio(each) for each in inside]))))
    by_tokens = []
    for low, high in _TOKENS:
        inside = [each for each in four if low <= each["tokens"] <= high]
        by_tokens.append((_span(low, high), len(inside), *_times(summary([_ratio(each) for each in inside]))))
    heads = ("layers", "geometric mean", "at least as fast", "worst")
    return f"{table(('', *heads), rows)}\n\nThe four, by tokens:\n\n{table(('tokens', *heads), by_tokens)}"


def _layers(bench: Bench) -> Entries:
    return [each for each in bench("moe", f"--moe={DATA / 'mi355x_mx_moe.csv'}") if each["published_us"]]


def _ratio(each: dict[str, Any]) -> float:
    return float(each["published_us"]) / (each["ours_us_gemm1"] + each["ours_us_gemm2"])


def _times(values: tuple[str, str, str]) -> tuple[str, str, str]:
    found, least, worst = values
    return f"{found} ×", least, f"{worst} ×"


def decode(bench: Bench) -> str:
    """Linear layers of bf16 activations: one dispatch, or one that quantises in front of another."""
    del bench
    registry, options = _registry()
    rows = []
    for (n, k), kind, m in product(_LAYERS, ("fp4", "fp8"), (1, 16)):
        problem = Problem(m, n, k, (_ELEMENTS[kind],) * 2 + SCALES_AND_RESULT)
        fitting = [each for each in quantising.SINGLES if selected.takes(each, problem, _BITS)]
        timed = [selected.modelled_us(registry[each.name], problem, _BYTES) for each in fitting]
        one = min(timed)
        apart = fastest(problem, registry, _BYTES)[0].us + selected.separate_us(options.target, problem, _BITS)
        rows.append((f"{m} × {n} × {k}", kind, f"{one:.1f}", f"{apart:.1f}", f"{apart / one:.2f}"))
    return table(("M × N × K", "both types", "one dispatch", "apart", "apart / one"), rows)


def dequantised(bench: Bench) -> str:
    """Linear layers of bf16 activations that are not quantised."""
    del bench
    registry, options = _registry()
    heads, columns = ["N × K"], []
    for kind, m in product(("fp4", "fp8"), (1, 16, 64, 256)):
        heads.append(f"{kind} weights, M = {m}")
        problems = [Problem(m, n, k, ("bf16", _ELEMENTS[kind], *SCALES_AND_RESULT)) for n, k in _LAYERS]
        columns.append([_dequantised_us(each, registry, options) for each in problems])
    rows = [(f"{n} × {k}", *row) for (n, k), row in zip(_LAYERS, zip(*columns, strict=True), strict=True)]
    return table(heads, rows)


def _dequantised_us(problem: Problem, registry: Registry, options: Options) -> str:
    found = WeightOnly.propose(Site(problem, result="bf16"), Context(registry, options), Plan())
    note = found.plan.note if isinstance(found, Proposal) else None
    us = re.search(r"modelled ([0-9.]+) µs", note or "")
    return us[1] if us else "IREE's"


def _registry() -> tuple[Registry, Options]:
    options = Options.make(ukernels=FASTEST)
    with ir.Context(), ir.Location.unknown():
        return Registry(options.target), options


def loops(bench: Bench) -> str:
    """MFMA's share of loops of large tiles."""
    del bench
    rows = []
    for name in _LARGE:
        found = times.table(get_target(DEFAULT))[name]
        each = [kernels.loop(found, rate).mfma for rate in (64.0, kernels.LOOP_RATE)]
        rows.append((name.removeprefix("mx_"), *(f"{share:.0%}" for share in each)))
    return table(("ukernel", "bytes free", "28 bytes a cycle from memory"), rows)


def ranges(bench: Bench) -> str:
    """Kernels by ranges of a dynamic M."""
    del bench
    return _printed("versions.py")


def _printed(script: str, *args: str) -> str:
    """The table that another script here prints."""
    command = [sys.executable, ROOT / "benchmarks" / script, *args]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "\n".join(line for line in out.splitlines() if line.startswith("|"))


def gated(bench: Bench) -> str:
    """A gated layer, apart and fused."""
    del bench
    return _printed("layers.py", "--kinds", "gated", "--sizes", "4096/14336", "--rows", *_ROWS)


def results(bench: Bench) -> str:
    """The figures that README has of the other tables, each with its error."""
    ratios = _ratios(bench)
    found, least, worst = summary([ratio for _, ratio in ratios])
    few, _, _ = summary([ratio for m, ratio in ratios if m <= 64])
    many, _, _ = summary([ratio for m, ratio in ratios if m > 1024])
    seed = next(each for each in bench("sizes", *_SIZES) if _shape(each) == _SEED.replace("x", " × "))
    peer = next(each["us"] for each in _records(bench, "bf16") if each["configuration"] == "AITER")
    fp8 = dict(zip(_SQUARES, _speeds(bench, ("fp8", "fp8")), strict=True))["8192x8192x8192"]
    four, _, _ = summary([_ratio(each) for each in _layers(bench) if each["model"] in _FOUR])
    layer = next(iter(_decoder(bench, *_DECODERS[0])))
    error = f"± {50 * (seed['high'] - seed['low']) / seed['ours_us']:.0f} %"
    rows = (
        (
            f"MXFP4 GEMM, AITER's {len(ratios)} sizes",
            f"{found} × as fast (geometric mean); at least as fast in {least}; {worst} × at worst",
            "AITER's kernels, same model",
            f"{error} each; their ratio less",
        ),
        ("… up to 64 rows; more than 1024", f"{few} ×; {many} ×", "the same", "the same"),
        (
            f"MXFP4, {_shape(seed)} → bf16",
            f"{seed['ours_us']:.0f} µs",
            f"AITER {peer:.0f} µs, same model",
            f"{seed['low']:.0f} to {seed['high']:.0f} µs",
        ),
        ("MXFP8, 8192 × 8192 × 8192", f"{fp8} TFLOP/s", "2422 to 2554, measured by others", error),
        (
            f"MoE layers, {sum(each['model'] in _FOUR for each in _layers(bench))} of four models",
            f"{four} × as fast (geometric mean)",
            "published times, measured",
            "± 15 %; more for one token",
        ),
        (
            "A layer of Llama 3 8B, MXFP4, one token",
            f"{layer['us']:.1f} µs, {layer['us'] / layer['floor_us']:.2f} × its bytes and launches",
            "bytes at HBM's rate, 7 launches",
            "of attention AITER's kernels are met within 6 % (median)",
        ),
    )
    return table(("", "mxcomp", "compared with", "error"), rows)


def _decoder(bench: Bench, name: str, batches: str, contexts: str) -> Entries:
    """The pieces of a decoder, and its tokens, by batch and context."""
    return bench(f"model-{name}", f"--model={name}", f"--batch={batches}", f"--context={contexts}")


def models(bench: Bench) -> str:
    """Pieces of decoders, and tokens."""
    rows = []
    for name, batches, contexts in _DECODERS:
        for each in _decoder(bench, name, batches, contexts):
            shares = (f"{each[kind] / each['us']:.0%}" for kind in KINDS)
            speed = f"**{each['tokens_per_second']:.0f}**" if each["piece"] == TOKEN else ""
            ratio = f"{each['us'] / each['floor_us']:.2f}"
            piece = f"{each['count']} × {each['piece']}" if each["count"] > 1 else each["piece"]
            us = f"{each['us']:.0f}" if each["us"] >= 1000 else f"{each['us']:.1f}"
            rows.append(
                (name, each["batch"], each["context"], piece, us, f"{each['floor_us']:.1f}", ratio, speed, *shares)
            )
    return table(("model", "batch", "context", "piece", "modelled µs", "floor", "× floor", "tokens/s", *KINDS), rows)


PAGES: dict[str, dict[str, Callable[[Bench], str]]] = {
    "docs/benchmarks.md": {"aiter": aiter, "sizes": sizes, "bits": bits, "configurations": configurations},
    "docs/moe_benchmarks.md": {"layers": layers},
    "docs/models.md": {"models": models},
    "docs/gated_mlp.md": {"gated": gated},
    "docs/decode.md": {"decode": decode, "dequantised": dequantised},
    "docs/howto/tuning.md": {"ranges": ranges},
    "ukernels/README.md": {"loops": loops},
    "README.md": {"results": results},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for tables in PAGES.values() for name in tables]
    parser.add_argument("--aiter", type=Path, metavar="DIR", required=True)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, args.aiter)
        for page, tables in PAGES.items():
            for name in args.only:
                if name in tables:
                    _put(ROOT / page, name, tables[name](bench))
                    print(f"{page}: {name}", flush=True)
    return 0


def _put(page: Path, name: str, text: str) -> None:
    begin, end = f"<!-- {name}: written by benchmarks/pages.py -->", f"<!-- end of {name} -->"
    page.write_text(marked.put(page.read_text(), begin, end, text))


if __name__ == "__main__":
    raise SystemExit(main())
