"""Kernels whose operands and results have dimensions of size 1, which IREE would drop with the kernel."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import arith, func, vector

import mxcomp
from mxcomp.errors import InternalError
from mxcomp.mlir import build
from mxcomp.packing import standing
from mxcomp.ukernels import builder
from mxcomp.ukernels import standing as kernels
from mxcomp.ukernels.builder import Index, Threads, Values

LANES = 64
DTYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i8": np.int8}
Operands = Sequence[tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Sum(kernels.Kernel):
    """A kernel that adds the first element of each other operand to rows, of which a workgroup has one."""

    rows: int
    row: tuple[int, ...]
    others: Operands

    @property
    def name(self) -> str:
        return f"mx_sum_{builder.digest(self)}"

    @property
    def threads(self) -> int:
        return LANES

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type(*each) for each in (((self.rows, *self.row), "f32"), *self.others)]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([self.rows, *self.row], "f32")]

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        place = [threads.number if size == LANES else 0 for size in self.row]
        rows, *others, _ = given
        total = _element(rows, [workgroup, *map(Index.of, place)])
        for each in others:
            first = _element(each, [Index.of(0)] * ir.RankedTensorType(each.type).rank)
            total = arith.AddFOp(total, first).result
        threads.store([builder.from_elements([total])], [1, *(1 for _ in place)], [0, *place])

    def program(self) -> bytes:
        """Returns a program of this kernel only. Operands of one type are one argument."""
        with ir.Context() as context, ir.Location.unknown():
            context.load_all_available_dialects()
            made, kinds = ir.Module.create(), [*dict.fromkeys(self.inputs)]
            with ir.InsertionPoint(made.body):
                main = func.FuncOp("main", ir.FunctionType.get(kinds, self.results))
            with ir.InsertionPoint(main.add_entry_block()):
                operands = [main.arguments[kinds.index(kind)] for kind in self.inputs]
                func.ReturnOp(standing.dispatch(self, operands))
            return str(made).encode()


def _element(operand: ir.Value, place: Sequence[Index]) -> ir.Value:
    """Returns an element of an operand as f32."""
    shape, f32 = list(ir.RankedTensorType(operand.type).shape), ir.F32Type.get()
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    value = vector.ExtractOp(builder.load(builder.whole_buffer(operand, strides), place, 1), [], [0]).result
    if isinstance(value.type, ir.IntegerType):
        return arith.SIToFPOp(f32, value).result
    return value if value.type == f32 else arith.ExtFOp(f32, value).result


ONES = ((1,), "i32"), ((1,), "i8"), ((1, 1), "f16"), ((1, 8), "f32"), ((8, 1), "f32")


@pytest.mark.parametrize(
    "kernel",
    [
        Sum(1, (1, LANES), (*ONES, *ONES[:2])),
        pytest.param(Sum(2, (LANES,), ONES[:1]), marks=pytest.mark.slow),
        pytest.param(Sum(1, (LANES, 1), ()), marks=pytest.mark.slow),
        pytest.param(Sum(3, (), ONES[:3]), marks=pytest.mark.slow),
    ],
)
def test_dimensions_of_size_1(kernel: Sum) -> None:
    """A single workgroup, results and operands with such dimensions, and operands of one element."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((kernel.rows, *kernel.row)).astype(np.float32)
    others = {each: rng.integers(-8, 8, each[0]).astype(DTYPES[each[1]]) for each in kernel.others}
    (found,) = mxcomp.compile(kernel.program(), strict=True).run(x, *others.values())
    firsts = [others[each].flat[0].astype(np.float32) for each in kernel.others]
    np.testing.assert_allclose(found, x + sum(firsts), rtol=1e-6)


def test_a_dropped_kernel_is_an_error() -> None:
    """IREE drops what is of one element, as it does with a constant subscript, and the kernel's name."""
    plain = re.sub(rb"d\d+ floordiv \d+", b"0", Sum(2, (LANES,), ONES[:1]).program())
    with pytest.raises(InternalError, match="IREE dropped the kernel of a dispatch"):
        mxcomp.compile(plain, strict=True)


def test_a_kernel_of_one_element_is_refused() -> None:
    with pytest.raises(InternalError, match="of one element"):
        Sum(1, (), ONES[:1]).program()
