"""Builds kernels: Python code runs while a kernel is written, and its calls here become the kernel's MLIR.

A Python `for` or `if` is executed while the kernel is written; `loop` and `when` emit loops and branches. Sizes and
indices are `Index` (`mlir.index`): sums that are folded in Python, and become operations where they are used. Values in
registers are `ir.Value`s, mostly vectors (`mlir.vectors`). Functions build at MLIR's current insertion point, in the
order in which they are called. Their names are those of the hardware, or of MLIR's operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import amdgpu, func, llvm, memref, rocdl, scf, tensor, util, vector

from mxcomp.formats import element_format
from mxcomp.layout import IntrinsicShape
from mxcomp.mlir import attributes, build, graph
from mxcomp.mlir.buffers import dense_strides
from mxcomp.mlir.index import *  # noqa: F403
from mxcomp.mlir.index import Index, assume, i32_type, to_i32
from mxcomp.mlir.vectors import *  # noqa: F403
from mxcomp.mlir.vectors import as_tensor, element, from_elements, joined, words, written

RULE = "mxcomp.ukernel"
"""The attribute of a function with its match rule."""

Values: TypeAlias = list[ir.Value]
"""Values in registers."""

Factor: TypeAlias = tuple[ir.Value, tuple[ir.Value, int]]
"""A fragment as an MFMA takes it; four of a lane's scales, and the index of the one that it is scaled by."""

Window: TypeAlias = tuple["Index", int]
"""The part of an operand along its first dimension: where it begins, and its size."""

Part: TypeAlias = tuple[Values, Sequence[int], Sequence["Index | int"]]
"""The part of a result that a thread stores: values, their shape, and where they begin."""

MOST_BYTES = 2**31 - 1
"""The largest size in bytes of a buffer that a kernel addresses: by signed offsets of 32 bits."""
MOST_ELEMENTS = 2**31
"""The largest number of elements of memory that a kernel addresses without a buffer: indices are of 32 bits."""
_BUFFER, _BINDING, _GLOBAL = (
    "#amdgpu.address_space<fat_raw_buffer>", "#hal.descriptor_type<storage_buffer>", "#gpu.address_space<global>",
)  # fmt: skip


def digest(parameters: object) -> str:
    """Returns a short digest of all parameters of a kernel, for its name."""
    return hashlib.sha256(repr(parameters).encode()).hexdigest()[:8]


def opaque(value: Index, pinned: bool = False) -> Index:
    """Returns the value behind an empty asm, which LLVM cannot look through; `pinned`: nothing that depends on it moves
    in front."""
    return Index.of(llvm.InlineAsmOp(i32_type(), [to_i32(value)], "", "=s,0", has_side_effects=pinned).res)


def pinned(value: Index) -> Index:
    """Returns the value in a register of each lane, computed here."""
    return Index.of(llvm.InlineAsmOp(i32_type(), [to_i32(value)], "", "=v,0", has_side_effects=True).res)


def keep_loads() -> None:
    """Keeps the loads in front of here: of those before a loop and those for its next turn LLVM would make one load, in
    the turn that uses it."""
    llvm.InlineAsmOp(None, [], "", "", has_side_effects=True)


def lane_sum(of_wave: Index, of_lane: Index) -> Index:
    """Returns the sum of scalar values and a lane's own, computed here by one vector instruction.

    LLVM would add in another order, and keep what does not change in registers of lanes.
    """
    values = [to_i32(of_wave), to_i32(of_lane)]
    return Index.of(llvm.InlineAsmOp(i32_type(), values, "v_add_u32 $0, $1, $2", "=v,s,v", has_side_effects=True).res)


def uniform(value: Index) -> Index:
    """Returns a value that is equal in all lanes of a wave: LLVM keeps it in, and branches by, scalar registers."""
    return Index.of(rocdl.ReadfirstlaneOp(i32_type(), to_i32(value)).res)


def workgroup() -> Index:
    """Returns the number of this workgroup, in a one-dimensional dispatch."""
    first = ir.IntegerAttr.get(ir.IndexType.get(), 0)
    op = ir.Operation.create("hal.interface.workgroup.id", [ir.IndexType.get()], attributes={"dimension": first})
    return Index.of(op.result)


# Control flow


@contextmanager
def when(condition: ir.Value) -> Iterator[None]:
    """Executes the code inside only in waves in which `condition` is true."""
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.YieldOp([])


def choose(condition: ir.Value, yes: Callable[[], Sequence[Any]], no: Sequence[Any]) -> list[Any]:
    """Returns the result of `yes` in waves in which `condition` is true, else existing values: lists of any depth."""
    values = list(_leaves(no))
    chosen = either(condition, [value.type for value in values], lambda: list(_leaves(yes())), lambda: values)
    return list(_formed(no, iter(chosen)))


def either(
    condition: ir.Value, kinds: Sequence[ir.Type], yes: Callable[[], Values], no: Callable[[], Values]
) -> Values:
    """Returns the result of `yes` in waves in which `condition` is true, else that of `no`, of these types."""
    branch = scf.IfOp(condition, kinds, has_else=True)
    for block, write in ((branch.then_block, yes), (branch.else_block, no)):
        with ir.InsertionPoint(block):
            scf.YieldOp(write())
    return list(branch.results)


def loop(
    count: Index, body: Callable[..., Sequence[Any]], *carried: Any, start: Index | int = 0, step: int = 1,
    may_unroll: bool = False,
) -> list[Any]:  # fmt: skip
    """Executes `body` for each number below `count`, with carried values in lists and dictionaries of any depth.

    It returns what is carried on, of the same form.
    """
    op = scf.ForOp(Index.of(start).value, count.value, build.constant_index(step), list(_leaves(carried)))
    if not may_unroll:
        op.operation.attributes["llvm.loop_annotation"] = ir.Attribute.parse(
            "#llvm.loop_annotation<unroll = <disable = true>, peeled = <count = 0>>"
        )
    with ir.InsertionPoint(op.body):
        after = body(Index.of(op.induction_variable), *_formed(carried, iter(op.inner_iter_args)))
        scf.YieldOp(list(_leaves(after)))
    return list(_formed(carried, iter(op.results)))


def _leaves(tree: Any) -> Iterator[ir.Value]:
    if isinstance(tree, ir.Value):
        yield tree
    else:
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(each)


def _formed(tree: Any, values: Iterator[ir.Value]) -> Any:
    if isinstance(tree, dict):
        return {key: _formed(each, values) for key, each in tree.items()}
    return next(values) if isinstance(tree, ir.Value) else [_formed(each, values) for each in tree]


def without_size(value: ir.Value, dimension: int) -> ir.Value:
    """Returns a tensor one of whose sizes is hidden."""
    sizes = [None if i == dimension else size for i, size in enumerate(build.static_sizes(value))]
    return tensor.CastOp(build.tensor_type(sizes, build.element(value)), value).result


def call(name: str, arguments: Values, *results: ir.Type) -> Values:
    """Calls a function that is inserted when the kernel is linked: a dispatch brings it."""
    return list(func.CallOp(list(results), ir.FlatSymbolRefAttr.get(name), list(arguments)).results)


def shared_out(count: int, thread: Index, threads: int) -> Iterator[tuple[Index, ir.Value | None]]:
    """Yields a thread's numbers of so many, and whether each is one of them, if some threads have one too many."""
    for first in range(0, count, threads):
        number = (thread + first).here
        yield number, None if first + threads <= count else number < count


# Waiting and scheduling


def s_barrier() -> None:
    """Synchronises all waves of the workgroup."""
    rocdl.SBarrierOp()


def fenced_barrier() -> None:
    """Synchronises all waves; LLVM moves nothing past it, in either direction."""
    sched_barrier()
    s_barrier()
    sched_barrier()


def lds_barrier() -> None:
    """Synchronises all waves after each has completed its reads from, and writes to, LDS."""
    amdgpu.LDSBarrierOp()


def wait_lds() -> None:
    """Waits until this wave's reads from LDS are in registers."""
    amdgpu.MemoryCounterWaitOp(ds=0)


def async_group() -> None:
    """Ends a group of asynchronous copies to LDS, which `wait_groups` counts."""
    rocdl.AsyncmarkOp()


def wait_groups(in_flight: int) -> None:
    """Waits until at most so many of this wave's latest groups of copies are in flight."""
    rocdl.WaitAsyncmarkOp(ir.IntegerAttr.get(ir.IntegerType.get_signless(16), in_flight))


def set_priority(number: int) -> None:
    """Sets this wave's priority, from 0 to 3: a SIMD issues for the highest of its waves first."""
    rocdl.SetPrioOp(ir.IntegerAttr.get(ir.IntegerType.get_signless(16), number))


def sched_barrier() -> None:
    """Prevents LLVM from moving anything across; no instruction is emitted."""
    rocdl.SchedBarrier(_mask("none"))


def fence() -> None:
    """Prevents LLVM from moving accesses to memory across; no instruction is emitted."""
    llvm.FenceOp(llvm.AtomicOrdering.release, syncscope="wavefront")


def sched_groups(*kinds: str, times: int) -> None:
    """Makes LLVM interleave the preceding code by groups: so many times one instruction of each kind."""
    for _ in range(times):
        for kind in kinds:
            rocdl.SchedGroupBarrier(_mask(kind), 1, 0)


def _mask(kind: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#rocdl.sched_group_mask<{kind}>")  # bindings have no builder


# Memory


def buffer(
    operand: ir.Value, dynamic: Index, shape: Sequence[int | None], strides: Sequence[int | None], element: str = "i8",
    window: Window | None = None,
) -> ir.Value:  # fmt: skip
    """Returns a tensor with one `dynamic` size as a buffer of such elements in global memory. Loads beyond it give
    0. Of one of more than MOST_BYTES it is that of a window."""
    whole = build.bitcast(operand, build.tensor_type(shape, element), [dynamic.value])
    return whole_buffer(whole, strides) if window is None else _window(whole, strides, window)


def whole_buffer(operand: ir.Value, strides: Sequence[int | None] | None = None) -> ir.Value:
    """Returns a tensor in global memory, contiguous by default, as a buffer.

    Of more than MOST_BYTES it is memory with addresses of 64 bits, beyond whose end nothing may be loaded.
    """
    tensor_ = ir.RankedTensorType(operand.type)
    strides = dense_strides(tensor_.shape) if strides is None else strides
    is_far = tensor_.has_static_shape and prod(tensor_.shape) * tensor_.element_type.width // 8 > MOST_BYTES
    return _memory(operand, strides) if is_far else _to_buffer(operand, strides, _BUFFER)


def _memory(operand: ir.Value, strides: Sequence[int | None]) -> ir.Value:
    """Returns a tensor of more than MOST_BYTES as memory."""
    found = _to_buffer(operand, strides, _BINDING)
    of, space = ir.MemRefType(found.type), ir.Attribute.parse(_GLOBAL)
    return memref.MemorySpaceCastOp(ir.MemRefType.get(of.shape, of.element_type, of.layout, space), found).result


def _to_buffer(operand: ir.Value, strides: Sequence[int | None], space: str) -> ir.Value:
    tensor_ = ir.RankedTensorType(operand.type)
    layout = ir.StridedLayoutAttr.get(build.DYNAMIC, [build.DYNAMIC if each is None else each for each in strides])
    kind = ir.MemRefType.get(tensor_.shape, tensor_.element_type, layout, ir.Attribute.parse(space))
    attributes = {"read_only": ir.UnitAttr.get()}
    return ir.Operation.create("bufferization.to_buffer", [kind], [operand], attributes).result


def _window(operand: ir.Value, strides: Sequence[int | None], window: Window) -> ir.Value:
    """Returns a part of a tensor of more than MOST_BYTES as a buffer, which begins at an address of 64 bits."""
    (first, count), memory = window, _memory(operand, strides)
    kind = ir.MemRefType(memory.type)
    sizes, starts = [count, *kind.shape[1:]], [build.DYNAMIC, *[0] * (kind.rank - 1)]
    dims = [i for i, size in enumerate(sizes) if size == build.DYNAMIC]
    dynamic = [memref.DimOp(memory, build.constant_index(i)).result for i in dims]
    part = ir.MemRefType.get(sizes, kind.element_type, kind.layout, kind.memory_space)
    found = memref.SubViewOp(part, memory, [first.value], dynamic, [], starts, sizes, [1] * kind.rank).result
    of_start = ir.StridedLayoutAttr.get(0, ir.StridedLayoutAttr(kind.layout).strides)
    buffer_ = ir.MemRefType.get(sizes, kind.element_type, of_start, ir.Attribute.parse(_BUFFER))
    return amdgpu.FatRawBufferCastOp(found, resetOffset=True, results=[buffer_]).result


def stride(source: ir.Value, dimension: int) -> Index:
    """Returns the stride of a dimension of a buffer as a value, where only the program knows it."""
    _base, _offset, *numbers = memref.ExtractStridedMetadataOp(source).results
    return Index.of(numbers[len(numbers) // 2 + dimension])


def whole(source: ir.Value) -> tuple[ir.Value, Index]:
    """Returns the memory that a buffer is a part of, by elements from its start on, and the offset of the buffer."""
    base, offset, *_ = memref.ExtractStridedMetadataOp(source).results
    kind = ir.MemRefType(source.type)
    flat = ir.MemRefType.get([MOST_BYTES], kind.element_type, memory_space=kind.memory_space)
    return memref.ReinterpretCastOp(flat, base, [], [], [], [0], [MOST_BYTES], [1]).result, Index.of(offset)


def lds(size: int, element: str = "i8") -> ir.Value:
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    return memref.AllocOp(ir.MemRefType.get([size], ir.Type.parse(element), memory_space=space), [], []).result


def copy_to_lds(source: ir.Value, place: Sequence[Index], to: ir.Value, at: Index, size: int) -> None:
    """Copies each lane's `size` elements asynchronously to LDS, where they are contiguous by lanes."""
    places = [each.value for each in place]
    kind = ir.VectorType.get([size], ir.MemRefType(source.type).element_type)
    amdgpu.GatherToLDSOp(source, places, to, [at.value], ir.TypeAttr.get(kind), async_=True)


def read_lds(source: ir.Value, at: Index, size: int, alignment: int | None = None) -> ir.Value:
    """Reads so many elements to registers; `alignment`, in bytes, of an address that LLVM does not know."""
    return load(source, [at], size, alignment)


def write_lds(value: ir.Value, to: ir.Value, at: Index) -> None:
    vector.StoreOp(value, to, [at.value])


def load(source: ir.Value, place: Sequence[Index], size: int, alignment: int | None = None) -> ir.Value:
    """Loads so many elements of a buffer. Their first use waits for them."""
    kind = ir.VectorType.get([size], ir.MemRefType(source.type).element_type)
    return vector.LoadOp(kind, source, [each.value for each in place], alignment=alignment).result


def of_quad(value: ir.Value, lane: int) -> ir.Value:
    """Returns one lane's value in all four lanes of a quad."""
    lanes = ir.ArrayAttr.get([ir.IntegerAttr.get(i32_type(), lane)] * 4)
    kind = ir.Attribute.parse("#amdgpu<dpp_perm<quad_perm>>")
    return amdgpu.DPPOp(value, value, kind, permArgument=lanes, results=[value.type]).result


def all_of_quad(own: ir.Value) -> Values:
    """Returns the elements of the vectors that the four lanes of a quad have, in order."""
    each = [element(own, number) for number in range(ir.VectorType(own.type).shape[0])]
    return [of_quad(value, lane) for lane in range(4) for value in each]


def exchanged(one: ir.Value, other: ir.Value) -> Values:
    """Returns two vectors, of each 16 of whose lanes 0 to 7 are those of `one`, and 8 to 15 those of `other`: the first
    has what was in lanes 0 to 7 of both, the second what was in lanes 8 to 15."""
    (size,) = ir.VectorType(one.type).shape
    pairs = [(element(one, number), element(other, number)) for number in range(size)]
    first = from_elements([rotated(a, b, 8, quads=0b1100) for a, b in pairs])
    return [first, from_elements([rotated(b, a, 8, quads=0b0011) for a, b in pairs])]


def rotated(own: ir.Value, other: ir.Value, distance: int, quads: int = 0b1111) -> ir.Value:
    """Returns `own`, in some of the four quads of each 16 lanes replaced by `other` of the lane so far away."""
    kind, by = ir.Attribute.parse("#amdgpu<dpp_perm<row_ror>>"), ir.IntegerAttr.get(i32_type(), distance)
    return amdgpu.DPPOp(own, other, kind, permArgument=by, bank_mask=quads, results=[own.type]).result


def zeros(size: int) -> ir.Value:
    """Returns so many f32 zeros that are set here: LLVM would set constants where they are used first."""
    two = ir.VectorType.get([2], ir.F32Type.get())
    move = "v_pk_mov_b32 $0, 0, 0"
    return joined([llvm.InlineAsmOp(two, [], move, "=v", has_side_effects=True).res for _ in range(size // 2)])


def placed_zeros(registers: str) -> ir.Value:
    """Returns the four f32 zeros of a lane with which `placed_mfma` begins."""
    move = {"a": "v_accvgpr_write_b32 $0, 0", "v": "v_mov_b32 $0, 0"}[registers]
    f32 = ir.F32Type.get()
    return from_elements(
        [llvm.InlineAsmOp(f32, [], move, f"={registers}", has_side_effects=True).res for _ in range(4)]
    )


def mfma(shape: tuple[int, int, int], left: ir.Value, right: ir.Value, sums: ir.Value) -> ir.Value:
    """Returns `sums` plus the product of two vectors of bf16."""
    return amdgpu.MFMAOp(*shape, left, right, sums, results=[sums.type]).result


def scaled_mfma(shape: IntrinsicShape, left: Factor, right: Factor, sums: ir.Value) -> ir.Value:
    """Returns `sums` plus the product of two fragments."""
    (a, (a_scales, a_number)), (b, (b_scales, b_number)) = left, right
    m, n, k, *_ = shape
    op = amdgpu.ScaledMFMAOp(m, n, k, a, b, sums, a_scales, b_scales, a_number, b_number, results=[sums.type])
    return op.result


def placed_mfma(left: Factor, right: Factor, sums: ir.Value, registers: str) -> ir.Value:
    """Computes `scaled_mfma` of 16x16x128 with sums that stay in accumulator ("a") or in vector registers ("v").

    Of 256 and more accumulators LLVM would move some between both kinds all the time. It does not know how long this
    takes: `wait_mfma` is to stand in front of what else reads them, and nothing but loads from LDS may write factors.
    """
    (a, (a_scales, a_number)), (b, (b_scales, b_number)) = left, right
    codes = [element_format(str(ir.VectorType(x.type).element_type)).hardware_code for x in (a, b)]
    text = (
        "v_mfma_scale_f32_16x16x128_f8f6f4 $0, $1, $2, $0, $3, $4"
        f" op_sel:[{a_number % 2},{b_number % 2},0] op_sel_hi:[{a_number // 2},{b_number // 2},0]"
        f" cbsz:{codes[0]} blgp:{codes[1]}"
    )
    values = [*map(words, (a, b)), *(element(words(each), 0) for each in (a_scales, b_scales)), sums]
    return llvm.InlineAsmOp(sums.type, values, text, f"={registers},v,v,v,v,0").res


def placed(sums: ir.Value, registers: str) -> ir.Value:
    """Returns the sums of `placed_mfma` in their registers.

    Behind a loop: what reads them moves them there, and not in each of its turns.
    """
    return llvm.InlineAsmOp(sums.type, [sums], "", f"={registers},0").res


def wait_mfma() -> None:
    """Waits until results of `placed_mfma` may be read: for their 8 passes, at most, and 4 wait states more."""
    sched_barrier()
    llvm.InlineAsmOp(None, [], "s_nop 15", "", has_side_effects=True)
    sched_barrier()


# The kernel


def function(name: str, arguments: Sequence[ir.Type], *results: ir.Type) -> util.FuncOp:
    """Returns a function without a body, in no module."""
    kind = ir.TypeAttr.get(ir.FunctionType.get(list(arguments), list(results)))
    op = util.FuncOp(name, kind, sym_visibility="private")
    op.operation.regions[0].blocks.append(*arguments)
    return op


def module(kernel: ir.Operation, rule: Mapping[str, Any]) -> ir.Module:
    """Returns a module of a function and its match rule, and of declarations of what it calls."""
    made = ir.Module.create()
    declare(made, kernel)
    made.body.append(kernel)
    types = ir.ArrayAttr.get([ir.TypeAttr.get(ir.Type.parse(kind)) for kind in rule["types"]])
    kernel.attributes[RULE] = attributes.from_python({**rule, "types": types})
    return made


def declare(module: ir.Module, kernel: ir.Operation) -> None:
    """Declares what a kernel calls: a dispatch brings it."""
    called = {graph.callee(op): op for op in graph.walk(kernel) if op.name == "func.call"}
    with ir.InsertionPoint(module.body):
        for name, op in called.items():
            kinds = [[value.type for value in values] for values in (op.operands, op.results)]
            func.FuncOp(name, ir.FunctionType.get(*kinds), visibility="private")


@contextmanager
def threads(count: int, *results: ir.RankedTensorType, inits: Values | None = None) -> Iterator[Threads]:
    """Builds the code of each of so many threads, which ends by storing a part of each result.

    Results are written over `inits`, by default over nothing.
    """
    mapping = ir.Attribute.parse("[#gpu.thread<linear_dim_0>]")
    inits = [build.empty(result) for result in results] if inits is None else inits
    forall = scf.ForallOp([0], [count], [1], inits, mapping=mapping)
    number, *outs = forall.body.arguments
    with ir.InsertionPoint(forall.body):
        yield Threads(Index.of(number), outs, list(forall.results))


class Threads:
    """A thread's number and its results: it stores a part of each, or puts pieces into them, and then keeps them."""

    def __init__(self, number: Index, outs: Values, results: Values) -> None:
        self.number, self.outs, self.results = number, outs, results
        self._made = list(outs)

    def put(
        self, result: int, at: Sequence[Index | int], size: int, value: ir.Value | Callable[[], ir.Value],
        condition: ir.Value | None = None,
    ) -> None:  # fmt: skip
        """Puts so many elements, a vector, into a result from a place on; where a condition holds, if there is one."""
        shape, place = [*(1 for _ in at[1:]), size], [each.value if isinstance(each, Index) else each for each in at]
        out = self._made[result]
        before = build.sliced(out, place, shape)

        def made() -> Values:
            return [written(value if isinstance(value, ir.Value) else value(), shape, before)]

        (after,) = made() if condition is None else choose(condition, made, [before])
        self._made[result] = build.inserted(after, out, place, shape)

    def where(self, condition: ir.Value, put: Callable[[], None], results: slice = slice(None)) -> None:
        """Executes what puts pieces into some results only in waves in which a condition holds."""

        def made() -> Values:
            put()
            return self._made[results]

        self._made[results] = choose(condition, made, self._made[results])

    def each(self, count: Index, put: Callable[[Index], None], step: int, start: Index, results: slice) -> None:
        """Executes what puts pieces into some results for each number below `count`."""

        def made(number: Index, before: Values) -> list[Values]:
            self._made[results] = before
            put(number)
            return [self._made[results]]

        (self._made[results],) = loop(count, made, self._made[results], start=start, step=step)

    def keep(self) -> None:
        """Stores results with the pieces that each thread has put into them."""
        sizes = [build.dynamic_sizes(out) for out in self.outs]
        with ir.InsertionPoint(scf.InParallelOp().block):
            for value, dynamic, out in zip(self._made, sizes, self.outs, strict=True):
                shape = list(ir.RankedTensorType(out.type).shape)
                zeros, ones = [0] * len(shape), [1] * len(shape)
                tensor.ParallelInsertSliceOp(value, out, [], dynamic, [], zeros, shape, ones)

    def store(self, values: Values, shape: Sequence[int], place: Sequence[Index | int]) -> None:
        """Stores fragments of accumulators, in the order of `shape`, as a part of the result that begins at `place`.

        Of several results the first fragments are those of the first one, and so on.
        """
        count = len(values) // len(self.outs)
        self.store_each(*((values[i * count : (i + 1) * count], shape, place) for i in range(len(self.outs))))

    def store_each(self, *parts: Part) -> None:
        """Stores values of each result, as a part of it of some shape at an index.

        IREE fuses what reads several results only if their indices are one value, which it would compute anew if it
        could look through them. Other indices may be beyond a result.
        """
        stored = [(as_tensor(values, shape), shape, place) for values, shape, place in parts]
        known = dict[Index, Index]()
        if len(parts) > 1:
            spare = ((place, shape, out.type.shape) for (_, shape, place), out in zip(parts, self.outs, strict=True))
            ends = ((each, has - takes) for of in spare for each, takes, has in zip(*of, strict=True))
            common = set.intersection(*({each for each in place if isinstance(each, Index)} for *_, place in parts))
            known = {each: assume(each, 0, end) for each, end in dict(ends).items() if each in common}
        offsets = [[known.get(each, each).value for each in place if isinstance(each, Index)] for _, _, place in stored]
        with ir.InsertionPoint(scf.InParallelOp().block):
            for (value, shape, place), dynamic, out in zip(stored, offsets, self.outs, strict=True):
                static = [build.DYNAMIC if isinstance(each, Index) else each for each in place]
                tensor.ParallelInsertSliceOp(value, out, dynamic, [], [], static, list(shape), [1] * len(shape))


def collapsed(value: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    """Returns a tensor whose adjacent dimensions are collapsed to those of `kind`."""
    sizes, groups = iter(enumerate(ir.RankedTensorType(value.type).shape)), []
    for size in kind.shape:
        group = [next(sizes)]
        while prod(each for _, each in group) < size:
            group.append(next(sizes))
        groups.append([number for number, _ in group])
    return value if len(groups) == value.type.rank else tensor.CollapseShapeOp(kind, value, groups).result
