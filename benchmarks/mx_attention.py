"""Tables of docs/mx_attention.md: how far MX attention is from float64, and what it takes, modelled.

python benchmarks/mx_attention.py [--aiter DIR [--heads H --length L]]

Errors are of `mxcomp.torch.mx_attention` on the CPU, which the compiled program computes as well (test/torch). Times
are modelled: of the kernel alone, for elements and scales that are there already. Both tables take five minutes of a
core. Other numbers of heads, or of keys, are printed only.
"""

from __future__ import annotations

import argparse
import math
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import aiter_attention
import marked
import torch
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp.formats import element_format
from mxcomp.ir.attention import EXACT, LINEAR, Form, attention
from mxcomp.sim.device import Device
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import examine
from mxcomp.torch import mx_attention

PAGE = Path(__file__).parents[1] / "docs" / "mx_attention.md"
FORMATS = (
    ("E4M3", "E4M3", "E4M3"), ("E2M3", "E4M3", "E4M3"), ("E2M1", "E4M3", "E4M3"), ("E4M3", "E2M1", "E4M3"),
    ("E2M3", "E2M1", "E4M3"), ("E2M1", "E2M1", "E4M3"), ("E2M1", "E2M1", "E2M1"), ("E5M2", "E5M2", "E5M2"),
)  # fmt: skip
"""The formats of queries and keys, of values, and of weights, of each row."""
ROWS = (*((formats, EXACT) for formats in FORMATS), *((formats, LINEAR) for formats in aiter_attention.KERNELS))
HEADS, LENGTH, SIZE = 2, 1024, 128
_OUTLIERS, _LARGER = 4, 8.0
"""So many elements of each key are so many times as large, as keys of models often have some."""
TIMED_HEADS, TIMED_LENGTH = 40, 8192
TIMED = (
    *((formats, EXACT, False) for formats in (*aiter_attention.KERNELS, FORMATS[6])),
    *((formats, LINEAR, False) for formats in aiter_attention.KERNELS), (FORMATS[0], EXACT, True),
)  # fmt: skip
"""Formats and powers, and whether attention is causal, of each row."""
_MEMORY, _SPARE = 16 << 30, 1 << 16


def operands(with_outliers: bool) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values of a normal distribution, in bf16."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, LENGTH, SIZE, generator=generator) for _ in range(3))
    if with_outliers:
        key[..., :: SIZE // _OUTLIERS] *= _LARGER
    return tuple(each.bfloat16() for each in (query, key, value))


def error(given: tuple[torch.Tensor, ...], formats: tuple[str, str, str], powers: str, is_causal: bool) -> float:
    """The root mean square of differences from attention in float64, by that of the latter."""
    exact = torch.nn.functional.scaled_dot_product_attention(*(each.double() for each in given), is_causal=is_causal)
    found = mx_attention(*(each.float() for each in given), *formats, is_causal=is_causal, powers=powers).double()
    return float(((found - exact).square().mean() / exact.square().mean()).sqrt())


def rounding(given: tuple[torch.Tensor, ...], is_causal: bool) -> float:
    """The same of PyTorch's attention in bf16."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    exact = sdpa(*(each.double() for each in given), is_causal=is_causal)
    return float(((sdpa(*given, is_causal=is_causal) - exact).square().mean() / exact.square().mean()).sqrt())


def errors() -> list[str]:
    """Rows of the table, a row for each mix of formats."""
    cases = [(operands(with_outliers), is_causal) for with_outliers in (False, True) for is_causal in (False, True)]
    rows = [
        (*formats, powers, *(f"{error(given, formats, powers, is_causal):.1%}" for given, is_causal in cases))
        for formats, powers in ROWS
    ]
    rows.append(("bf16", "bf16", "bf16", EXACT, *(f"{rounding(*case):.1%}" for case in cases)))
    head = ["queries, keys", "values", "weights", "powers", "all keys", "causal", "large keys", "large keys, causal"]
    return table(head, rows)


def times(aiter: Path, heads: int, length: int) -> list[str]:
    """Rows of the table: µs and TFLOP/s of the kernel, and of AITER's."""
    rows, others = [], dict[tuple[str, ...], float]()
    for formats, powers, is_causal in TIMED:
        us = time(formats, powers, is_causal, heads, length)
        flops = (2 if is_causal else 4) * heads * length**2 * SIZE
        found = [f"{us:.0f}", f"{flops / us / 1e6:.0f}"]
        if is_causal or (kernel := aiter_attention.KERNELS.get(formats)) is None:
            found += ["", "", ""]
        else:
            if formats not in others:
                others[formats] = aiter_attention.us(aiter, kernel, heads, length)
            other = others[formats]
            found += [f"{other:.0f}", f"{flops / other / 1e6:.0f}", f"{other / us:.2f}"]
        rows.append((*formats, powers, "causal" if is_causal else "all", *found))
    ours, theirs = ("µs", "TFLOP/s"), ("AITER's, µs", "TFLOP/s", "as fast as AITER's")
    return table(["queries, keys", "values", "weights", "powers", "keys seen", *ours, *theirs], rows)


def time(formats: tuple[str, str, str], powers: str, is_causal: bool, heads: int, length: int) -> float:
    """Modelled µs of the kernel, with queries that were multiplied by the scale before they were quantised."""
    kinds, shapes = (formats[0], formats[0], formats[1]), list[list[int]]()
    for i, kind in enumerate(kinds):
        rows, k = (length, SIZE) if i < 2 else (SIZE, length)
        shapes += [[heads, rows, k * element_format(kind).bits // 8], [heads, rows, k // 32]]
    form = Form(1.0, length, length if is_causal else None, formats[2], powers)

    def main(*given: ir.Value) -> ir.Value:
        q, k, v = (mx.operand(given[2 * i], given[2 * i + 1], kind) for i, kind in enumerate(kinds))
        result = attention((q.elements, q.scales), (k.elements, k.scales), (v.elements, v.scales), form)
        return mx.elementwise(lambda x: x, result, result="bf16")

    module = mx.module(main, *("x".join(map(str, [*shape, "i8"])) for shape in shapes))
    device = Device(memory_bytes=_MEMORY, checks=())
    with TemporaryDirectory() as folder:
        flags = (f"--iree-hal-dump-executable-binaries-to={folder}",)
        (entry,) = mxcomp.compile(module, strict=True, iree_flags=flags).report.attentions
        assert entry.ukernel is not None
        loaded = [device.load(path.read_bytes()).kernels for path in Path(folder).glob("*.hsaco")]
    (kernel,) = (each for kernels in loaded for name, each in kernels.items() if "transpose" not in name)
    sizes = [*map(math.prod, shapes), 2 * heads * length * SIZE]
    addresses = (device.memory.alloc(size + _SPARE, fill=False).address for size in sizes)
    grid = heads * -(-length // aiter_attention.QUERIES), 1, 1
    block = kernel.metadata.workgroup_size
    return estimate(examine(device, kernel, grid, struct.pack("<7Q", *addresses), block, asks=False)).us


def table(head: list[str], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="a checkout of ROCm/aiter: also the table of times")
    parser.add_argument("--heads", type=int, default=TIMED_HEADS)
    parser.add_argument("--length", type=int, default=TIMED_LENGTH)
    args = parser.parse_args()
    if (args.heads, args.length) != (TIMED_HEADS, TIMED_LENGTH):
        print("\n".join(times(args.aiter, args.heads, args.length)))
        return
    _put("errors", errors())
    if args.aiter is not None:
        _put("times", times(args.aiter, args.heads, args.length))


def _put(name: str, rows: list[str]) -> None:
    begin, end = f"<!-- {name}: written by benchmarks/mx_attention.py -->", f"<!-- end of {name} -->"
    PAGE.write_text(marked.put(PAGE.read_text(), begin, end, "\n".join(rows)))


if __name__ == "__main__":
    main()
