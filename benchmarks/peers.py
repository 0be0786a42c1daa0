"""Compares modelled times with published ones of FlyDSL's kernels, none of which the model was fitted to.

python benchmarks/peers.py --flydsl DIR --aiter DIR --python VENV/bin/python --kernels DIR [--verify | --write]

--flydsl and --aiter are clones of ROCm/FlyDSL and ROCm/aiter (bare ones do), from which the sources of the kernels are
taken as of the commits below. --python is one with FlyDSL, which does not bear IREE in the same process:

    pip install "flydsl==0.4.2" "torch==2.13.*" numpy

Compiled kernels are kept in --kernels, which takes half an hour the first time. Published are

- GEMM: FlyDSL's pull request 990, which has four sizes, before and after it (TFLOP/s);
- MoE: benchmarks/data/mi355x_mx_moe.csv, figures of tables that AITER publishes, of which `LAYERS` are modelled. They
  do not say which kernel of a stage was measured. The fastest tile by the model is taken, as a tuner would do.

--write puts the tables into docs/timing.md, --rows the layers into a table with peer_us_gemm1 and peer_us_gemm2, which
`mxcomp-bench --moe` takes, so that ours are beside them in the same model. --verify runs small instances of the same
kernels on the simulator instead, with the same argument blocks, and compares them with float64.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import peers_launch
import peers_verify
from peers_launch import Layer
from peers_report import Comparison, markdown, put
from timing_report import DOCS

from mxcomp.sim.timing.estimates import estimate

MOE = Path(__file__).parent / "data" / "mi355x_mx_moe.csv"
AFTER, BEFORE, AITER = "741f3d6d", "421935cc", "e4048607a5"
"""Commits of FlyDSL with pull request 990 and right before it, and of AITER in August 2026."""
PUBLISHED = {
    (8192, 8192, 8192): (4679, 5033),
    (8192, 8192, 16384): (5078, 5443),
    (16384, 16384, 8192): (4639, 5004),
    (16384, 16384, 16384): (5052, 5495),
}
"""M, N, K: TFLOP/s before and after."""
SIZES = ("tokens", "model_dim", "inter_dim", "experts", "top_k", "block_m")
FEW = (1, 8, 64, 512)
MANY = (*FEW, 4096, 32768)
LAYERS = {
    ("dsv3", 7168, 256, 257, "f4E2M1FN"): FEW,
    ("dsv4", 4096, 2048, 256, "f8E4M3FN"): FEW,
    ("gptoss", 3072, 3072, 128, "f8E4M3FN"): MANY,
    ("minimax", 3072, 768, 256, "f4E2M1FN"): MANY,
}
"""Numbers of tokens by model, model_dim, inter_dim, experts and type of activations. Kernels for many tokens and a long
K take minutes each to compile, as their loops are unrolled."""
TYPES = {"f4E2M1FN": "fp4", "f8E4M3FN": "fp8"}
WEIGHTS = "f4E2M1FN"
SMALL = ((64, 1), (64, 4), (128, 1))
TILES = {(1, "fp4"): ((64, 1), (128, 1)), (1, "fp8"): ((128, 1), (256, 1)), (2, "fp4"): ((128, 1), (256, 1)),
         (2, "fp8"): ((128, 1), (256, 1))}  # fmt: skip
"""By stage and type: width of a tile, and waves that share its K. `SMALL` are for stage 1 with block_m = 32. All are
registered by AITER for tuning."""


@dataclass(frozen=True)
class Measured:
    """A row of the MoE table; µs by stage."""

    model: str
    layer: Layer
    us: tuple[float, float]


@dataclass(frozen=True)
class Request:
    """A kernel to be compiled."""

    name: str
    builder: str
    constants: Mapping[str, Any]


def us_of(m: int, n: int, k: int, teraflops: float) -> float:
    return 2 * m * n * k / teraflops / 1e6


def measured(path: Path) -> list[Measured]:
    """Rows of `LAYERS`; of rows for the same, the fastest."""
    rows: dict[tuple[str, Layer], Measured] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            sizes = {name: int(row[name]) for name in SIZES}
            key = row["model"], sizes["model_dim"], sizes["inter_dim"], sizes["experts"], row["a_type"]
            if sizes["tokens"] not in LAYERS.get(key, ()):
                continue
            layer = Layer(**sizes, a_type=TYPES[row["a_type"]], activation=row["activation"])
            found = Measured(row["model"], layer, (float(row["us_gemm1"]), float(row["us_gemm2"])))
            same = found.model, replace(layer, block_m=0)
            if same not in rows or sum(found.us) < sum(rows[same].us):
                rows[same] = found
    return sorted(rows.values(), key=lambda row: (row.model, row.layer.tokens))


def gemm_request(m: int, n: int, k: int, old: bool) -> Request:
    name = f"gemm_{m}x{n}x{k}_{'before' if old else 'after'}"
    return Request(name, "fp4_gemm", {"m": m, "n": n, "k": k, "old": old})


def moe_request(layer: Layer, stage: int, tile_n: int, k_wave: int) -> Request:
    """The same for any number of tokens."""
    sizes = f"{layer.model_dim}x{layer.inter_dim}x{layer.experts}x{layer.top_k}_{layer.a_type}_{layer.activation}"
    name = f"moe{stage}_{sizes}_t{layer.block_m}x{tile_n}x{k_wave}"
    return Request(name, f"moe_stage{stage}", peers_launch.constants(layer, stage, tile_n, k_wave))


def tiles(layer: Layer, stage: int) -> tuple[tuple[int, int], ...]:
    return SMALL if (stage, layer.block_m) == (1, 32) else TILES[stage, layer.a_type]


def compiled(requests: Iterable[Request], python: Path, kernels: Path, clone: Path, commit: str, folder: str) -> None:
    """Compiles what is not there yet, from the sources of a commit; says what cannot be."""
    wanted = {request.name: request for request in requests if not (kernels / f"{request.name}.hsaco").exists()}
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as temporary:
        sources = ["git", "-C", str(clone), "archive", commit, f":(glob){folder}/**/*.py"]
        with tarfile.open(fileobj=BytesIO(subprocess.run(sources, check=True, capture_output=True).stdout)) as archive:
            archive.extractall(temporary, filter="data")
        entries = [
            {"file": str(kernels / f"{request.name}.hsaco"), "builder": request.builder, "root": temporary,
             "constants": dict(request.constants)}
            for request in wanted.values()
        ]  # fmt: skip
        todo = Path(temporary, "requests.json")
        todo.write_text(json.dumps(entries))
        found = find_spec("iree.compiler")
        assert found is not None
        (compiler,) = found.submodule_search_locations or ()
        lld = Path(compiler, "_mlir_libs", "iree-lld")
        script = Path(__file__).with_name("peers_compile.py")
        made = subprocess.run([python, script, todo, "--lld", lld], stderr=subprocess.PIPE, text=True)
        if made.returncode:
            raise SystemExit(f"{python} could not compile FlyDSL's kernels:\n{made.stderr[-2000:]}")


def gemms(kernels: Path) -> Iterator[Comparison]:
    for (m, n, k), teraflops in PUBLISHED.items():
        for old, title in ((True, "before"), (False, "after")):
            found = estimate(peers_launch.gemm(kernels / f"{gemm_request(m, n, k, old).name}.hsaco", m, n, k))
            yield Comparison(title, f"{m}×{n}×{k}", us_of(m, n, k, teraflops[not old]), found)


def stages(kernels: Path, row: Measured) -> list[Comparison]:
    """Both GEMMs of a layer, each with the fastest of the tiles that could be compiled."""
    layer, result = row.layer, []
    routing = peers_launch.route(layer)
    title = f"{row.model}, {layer.model_dim}×{layer.inter_dim}, {layer.top_k} of {layer.experts}, {layer.a_type}"
    for number, published in enumerate(row.us, 1):
        found = []
        for tile_n, k_wave in tiles(layer, number):
            path = kernels / f"{moe_request(layer, number, tile_n, k_wave).name}.hsaco"
            if path.exists():
                found.append((estimate(peers_launch.moe(path, layer, number, tile_n, routing)), tile_n, k_wave))
        if found:
            best, tile_n, k_wave = min(found, key=lambda one: one[0].us)
            tile = f"gemm{number} {layer.block_m}×{tile_n}" + f" / {k_wave}" * (k_wave > 1)
            result.append(Comparison(title, f"{layer.tokens}, {tile}", published, best))
    return result


def rows_with_peers(rows: Iterable[Measured], found: Iterable[list[Comparison]]) -> str:
    """The layers of which both GEMMs were modelled, in the columns of `mxcomp-bench --moe`."""
    text = StringIO(newline="")
    names = (
        "model",
        *SIZES,
        "activation",
        "a_type",
        "w_type",
        "us_gemm1",
        "us_gemm2",
        "peer_us_gemm1",
        "peer_us_gemm2",
    )
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    elements = {short: name for name, short in TYPES.items()}
    for row, stages_ in zip(rows, found, strict=True):
        if len(stages_) != len(row.us):
            continue
        layer = asdict(row.layer) | {"model": row.model, "a_type": elements[row.layer.a_type], "w_type": WEIGHTS}
        published = {f"us_gemm{number}": us for number, us in enumerate(row.us, 1)}
        ours = {f"peer_us_gemm{number}": round(one.modelled.us, 3) for number, one in enumerate(stages_, 1)}
        table.writerow({**layer, **published, **ours})
    return text.getvalue()


def compile_gemms(args: argparse.Namespace, requests: Iterable[Request], old: bool) -> None:
    compiled(requests, args.python, args.kernels, args.flydsl, BEFORE if old else AFTER, "kernels")


def compile_moe(args: argparse.Namespace, requests: Iterable[Request]) -> None:
    if args.aiter:
        compiled(requests, args.python, args.kernels, args.aiter, AITER, "aiter/ops/flydsl")


def verify(args: argparse.Namespace) -> int:
    """Prints what is right and what is not."""
    results = []
    for old in (True, False):
        request = gemm_request(*peers_verify.GEMM, old)
        compile_gemms(args, [request], old)
        results.append(peers_verify.gemm(args.kernels / f"{request.name}.hsaco"))
    for layer in peers_verify.LAYERS if args.aiter else ():
        for stage in (1, 2):
            request = moe_request(layer, stage, peers_verify.TILE_N, 1)
            plain = {**request.constants, "out_dtype": "bf16"}
            request = replace(request, name=f"{request.name}_bf16", constants=plain)
            compile_moe(args, [request])
            results.append(peers_verify.moe(args.kernels / f"{request.name}.hsaco", layer, stage))
    print("\n".join(results))
    return int(any("WRONG" in result for result in results))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flydsl", type=Path, required=True, metavar="DIR", help="a clone of ROCm/FlyDSL")
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="a clone of ROCm/aiter; without it no MoE")
    parser.add_argument("--moe", type=Path, default=MOE, metavar="FILE.csv")
    parser.add_argument("--python", type=Path, required=True, help="one that has FlyDSL")
    parser.add_argument("--kernels", type=Path, required=True, metavar="DIR", help="where compiled kernels are kept")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes that model (default: one for each core)")
    parser.add_argument("--rows", type=Path, metavar="OUT.csv", help="layers with modelled times of both GEMMs")
    parser.add_argument("--write", action="store_true", help="write docs/timing.md")
    parser.add_argument("--verify", action="store_true", help="run small instances instead, and compare with float64")
    args = parser.parse_args()
    args.kernels.mkdir(parents=True, exist_ok=True)
    if args.verify:
        return verify(args)
    for old in (True, False):
        compile_gemms(args, [gemm_request(*size, old) for size in PUBLISHED], old)
    rows = measured(args.moe) if args.aiter else []
    layers = sorted({row.layer for row in rows}, key=lambda layer: (layer.model_dim, layer.block_m))
    compile_moe(args, [moe_request(layer, stage, *tile) for layer in layers for stage in (2, 1)
                       for tile in tiles(layer, stage)])  # fmt: skip
    with ProcessPoolExecutor(args.jobs) as pool:
        found = list(pool.map(stages, [args.kernels] * len(rows), rows))
    if args.rows:
        args.rows.write_text(rows_with_peers(rows, found))
    grouped = [one for each in found for one in each]
    tables = markdown(list(gemms(args.kernels)), grouped)
    print(tables)
    if args.write:
        DOCS.write_text(put(DOCS.read_text(), tables))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
