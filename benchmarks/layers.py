"""What quantising in matmuls' dispatches gains, modelled: layers without, where it is chosen, and wherever it can be.

For M from 1 to 8192, static and dynamic.

python benchmarks/layers.py [--sizes 4096/14336 …] [--rows 1 16 …] [--kinds gated …] [--types f4E2M1FN …]
python benchmarks/layers.py --profile …     # every program compiled, too, and profiled: takes minutes

Sums are of all dispatches, by the tables that choices are made with; behind them, in parentheses, of the profile.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from iree.compiler import ir
from layer_times import KINDS, Layer, decided, modelled, profiled

from mxcomp.formats import ELEMENT_TYPES
from mxcomp.options import AUTO, OFF, ON, Options
from mxcomp.registry import Registry

SIZES = ("4096/14336", "2880/2880", "7168/2048")
"""Hidden and intermediate sizes: of Llama 3 8B, GPT-OSS's and DeepSeek V3's experts."""
ROWS = (1, 2, 4, 8, 16, 17, 32, 64, 65, 128, 256, 512, 1024, 2048, 4096, 8192)
WAYS = (OFF, AUTO, ON)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="HIDDEN/INTER")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="M")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--types", nargs="+", default=["f4E2M1FN"], choices=ELEMENT_TYPES)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, help="of which off and auto are compared")
    parser.add_argument("--profile", action="store_true", help="compile and profile every program, too")
    args = parser.parse_args()
    with ir.Context():
        registry = Registry(Options.make().target)
    slower = 0
    for kind, element, size in ((k, e, s) for k in args.kinds for e in args.types for s in args.sizes):
        hidden, inter = map(int, size.split("/"))
        headings = [f"{name}, {way}" for name in ("static", "dynamic") for way in args.ways]
        print(f"\n{kind}, {element}, {hidden}/{inter}\n\n| M | {' | '.join(headings)} |\n|---{'|---' * len(headings)}|")
        dynamic = _Ways(Layer(kind, hidden, inter, None, element), tuple(args.rows), registry, args)
        for m in args.rows:
            static = _Ways(Layer(kind, hidden, inter, m, element), (m,), registry, args)
            print(f"| {m} | {static.text(m)} | {dynamic.text(m)} |", flush=True)
            slower += static.is_slower(m) + dynamic.is_slower(m)
    print(f"\n{slower} choices are slower than without quantising in matmuls' dispatches")
    return int(slower > 0)


MEANS_ALLOW = 1.1
"""How many times longer some number of rows may take where M is dynamic: kernels are those of the shortest mean.

Gate and up that pack hidden activations do, for 65 rows: lanes of a tile of 128 × 64 would get no whole blocks.
"""


class _Ways:
    """A layer in each of the wanted ways, for some numbers of rows."""

    def __init__(self, layer: Layer, rows: tuple[int, ...], registry: Registry, args: argparse.Namespace) -> None:
        self._shown, self._allowed = args.ways, MEANS_ALLOW if layer.rows is None else 1.0
        decisions = {way: decided(layer, Options.make(fuse_quantisers=way)) for way in WAYS}
        self._us = {(way, m): sum(modelled(layer, decisions[way], m, registry)) for way in WAYS for m in rows}
        self._profiled: dict[tuple[str, int], float] = {}
        for way in args.ways if args.profile else ():
            with tempfile.TemporaryDirectory() as folder:
                found = profiled(layer, rows, Path(folder), way)
            self._profiled |= {(way, m): each.modelled_us for m, each in zip(rows, found, strict=True)}

    def is_slower(self, m: int) -> bool:
        return self._us[AUTO, m] > self._us[OFF, m] * self._allowed + 1e-6

    def text(self, m: int) -> str:
        return " | ".join(
            f"{self._us[way, m]:.1f}" + (f" ({self._profiled[way, m]:.1f})" if self._profiled else "")
            for way in self._shown
        )


if __name__ == "__main__":
    raise SystemExit(main())
