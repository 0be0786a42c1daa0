"""Programs compiled by stock IREE and by mxcomp when asked, and what their host side does with the kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

import mxcomp
from corpus.iree.host import read_program
from corpus.iree.program import Program
from corpus.operands import BITS
from mxcomp.mlir.session import Session

HERE = Path(__file__).parent
TARGET_FLAGS = ("--iree-hal-target-device=hip", "--iree-rocm-target=gfx950")
DATA_TILING = "--iree-dispatch-creation-data-tiling"
TYPES = {"e2m1": "f4E2M1FN", "e2m3": "f6E2M3FN", "e3m2": "f6E3M2FN", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
"""MLIR types of the formats."""
UKERNELS = "--iree-rocm-enable-tensor-ukernels"


def source(name: str, **values: object) -> str:
    """The module `name`.mlir.in with `$values` filled in."""
    return Template((HERE / f"{name}.mlir.in").read_text()).substitute(values)


def scaled_matmul(m: int, n: int, k: int, a: str = "e2m1", b: str = "e2m1") -> str:
    """[m, k] × [n, k]ᵀ in formats of `corpus.operands`."""
    types = {"a": TYPES[a], "b": TYPES[b], "a_bytes": k * BITS[a] // 8, "b_bytes": k * BITS[b] // 8}
    return source("scaled_matmul", m=m, n=n, blocks=k // 32, **types)


@cache
def stock(text: str, *flags: str) -> Program:
    """Compiled by IREE alone."""
    with TemporaryDirectory() as dump:
        session = Session((*TARGET_FLAGS, _dump(dump), *flags))
        session.load(text.encode(), "source")
        session.run("start", "hal")
        return read_program(str(session.module), _code(dump))


@cache
def ours(text: str, **options: object) -> Program:
    """Compiled by mxcomp, with its own options."""
    with TemporaryDirectory() as dump:
        compiled = mxcomp.compile(text, iree_flags=(_dump(dump),), compile_to="hal", **options)
        return read_program(compiled.vmfb, _code(dump))


COMPILERS: dict[str, Callable[[str], Program]] = {
    "stock": stock,
    "stock-dt": lambda text: stock(text, DATA_TILING),
    "stock-ukernel": lambda text: stock(text, DATA_TILING, UKERNELS),
    "m128_n256_k256": lambda text: ours(text, ukernels="mx_f4_f4_f32_m128_n256_k256"),
    "m64_n128_k512": lambda text: ours(text, ukernels="mx_f4_f4_f32_m64_n128_k512"),
    "row_major": lambda text: ours(text, data_tiling=False),
    "codegen": lambda text: ours(text, ukernels="none"),
}
"""Ways to compile a scaled matmul."""


def _dump(directory: str) -> str:
    return f"--iree-hal-dump-executable-binaries-to={directory}"


def _code(directory: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(directory).glob("*.hsaco"))]
