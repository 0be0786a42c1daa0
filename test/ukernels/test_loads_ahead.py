"""Loops whose loads are a turn ahead wait for the oldest of them, not for all, which LLVM may bring about unasked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

import pytest
from assembly import FLAG
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp.formats import E2M1

LINEAR = Template((Path(__file__).parent / "linear.mlir.in").read_text())


def weight_only() -> ir.Module:
    """16 rows, and three K tiles for each wave."""
    return mx.module(
        lambda x, elements, scales: mx.dequantised_matmul(x, mx.operand(elements, scales, E2M1)),
        "16x12288xbf16",
        "64x6144xi8",
        "64x384xi8",
    )


def linear() -> str:
    """64 rows of bf16, of which registers have no room for all."""
    text = LINEAR.substitute(m=64, n=64, k=8192, type="bf16", result="f32")
    return "\n".join(line for line in text.splitlines() if not line.endswith("// rounded"))


@pytest.mark.parametrize("program", [weight_only, pytest.param(linear, marks=pytest.mark.slow)])
def test_loops_do_not_drain(program: Callable[[], ir.Module | str], tmp_path: Path) -> None:
    mxcomp.compile(program(), strict=True, iree_flags=[f"{FLAG}={tmp_path}"])
    (loop,) = (each for path in tmp_path.glob("*.rocmasm") for each in _loops(path.read_text()))
    in_flight = [int(each) for each in re.findall(r"s_waitcnt vmcnt\((\d+)\)", loop)]
    assert min(in_flight) > len(re.findall("buffer_load", loop)) // 2


def _loops(text: str) -> Iterator[str]:
    """Yields what loops of one block that multiply consist of."""
    for _, body in re.findall(r"^(\.LBB\w+):(.*?)^\s+s_cbranch_\w+ \1$", text, re.MULTILINE | re.DOTALL):
        if "v_mfma" in body and "\n.LBB" not in body:
            yield body
