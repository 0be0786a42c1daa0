"""Finds operations outside of a plugin that a stock iree-compile 3.13 miscompiles, or cannot compile."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from iree.compiler import ir

from mxcomp.codes.six_bit import is_six_bit
from mxcomp.errors import InputError
from mxcomp.matching import quantiser
from mxcomp.matching.contraction import Candidate
from mxcomp.matching.decision import decision_of
from mxcomp.matching.expressions import Leaf
from mxcomp.matching.storage import storage
from mxcomp.mlir import build, graph
from mxcomp.mlir.graph import location_text
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.packing.stored_operand import is_constant
from mxcomp.passes.defer_constants import are_constant
from mxcomp.passes.workarounds import separate_variables
from mxcomp.passes.workarounds.double_keys import has_single_key
from mxcomp.passes.workarounds.keep_sorted import unread
from mxcomp.passes.workarounds.legalise_exclusive_scans import is_exclusive
from mxcomp.passes.workarounds.legalise_few_rows import is_fatal
from mxcomp.passes.workarounds.legalise_filled_scans import is_filled
from mxcomp.passes.workarounds.legalise_lookups import is_misread
from mxcomp.passes.workarounds.legalise_overwriting import may_be_one, repeats, written
from mxcomp.passes.workarounds.legalise_producers import repeated
from mxcomp.passes.workarounds.legalise_steps import has_idle_steps
from mxcomp.passes.workarounds.legalise_topk import NAMES as TOPK
from mxcomp.passes.workarounds.take_bytes import in_bytes
from mxcomp.passes.workarounds.unpack_elements import WRITES, is_narrow_tensor
from mxcomp.passes.workarounds.write_bytes import PAD

_PASSES_ON = (
    "scf.yield", "scf.for", "scf.while", "scf.condition", "cf.br", "cf.cond_br", "func.call", "util.call",
    "util.global.load", "util.global.store",
)  # fmt: skip
_FUNCTIONS = ("func.func", "util.func")
_RETURNS = ("func.return", "util.return", "hal.tensor.export")


def check(module: ir.Operation, candidates: Iterable[Candidate], taken: Collection[ir.Operation]) -> None:
    """Raises InputError for an operation that neither a plugin replaces nor a stock iree-compile compiles correctly.

    `candidates` are the matmuls below `module` that the plugin is for, `taken` all operations that it replaces.
    """
    quantisers = {op for candidate in candidates for op in _quantiser(candidate)}
    for candidate in candidates:
        leaves = (*candidate.lhs.leaves, *candidate.rhs.leaves)
        if are_constant(graph.producer(leaf.value) for leaf in leaves):
            _refuse(candidate.root, "evaluates a matmul of constants when it compiles, without our kernels")
        if any(not is_constant(leaf.value) and are_constant([graph.producer(leaf.value)]) for leaf in leaves):
            _refuse(candidate.root, "evaluates operands that are calculated from constants after their packing")
        for stored in [storage(side.element.value) for side in (candidate.lhs, candidate.rhs)]:
            kind = build.element(stored)
            if is_constant(stored) and isinstance(kind, ir.FloatType) and build.is_narrow(kind):
                fault = f"cannot pack constants of {kind}, only bytes (i8) with an iree_tensor_ext.bitcast"
                _refuse(candidate.root, fault)
    for op in separate_variables.shared(module):
        _refuse(op, "may keep variables that begin with equal values in one buffer")
    for op in graph.walk(module):
        if op not in taken and (fault := _fault(op, quantisers)):
            _refuse(op, fault)


def _refuse(op: ir.Operation, fault: str) -> None:
    raise InputError(
        f"{location_text(op.location)}: {op.name}: a stock iree-compile {fault}, and a plugin holds matmuls only: "
        "compile the model with mxcomp-compile"
    )


def _quantiser(candidate: Candidate) -> set[ir.Operation]:
    """Returns the operations that quantise operands in blocks of 32: lanes of IREE's kernels store whole blocks."""
    found: set[ir.Operation] = set()
    for side in (candidate.lhs, candidate.rhs):
        elements = _in_rows(side.element, (side.block, 1))
        scales = _in_rows(side.scale, (side.block,)) if side.scale is not None else None
        producer = quantiser.find(elements, scales) if elements is not None and scales is not None else None
        found |= {reading.user for reading in producer.readings} if producer is not None else set()
    return found


def _in_rows(leaf: Leaf, strides: tuple[int, ...]) -> ir.Value | None:
    """Returns the first of a leaf's tensors that is [rows, K/32, 32] or [rows, K/32], with these strides of K."""
    for each in reversed(leaf.accesses):
        first, *inner = each.indices
        if tuple(index.stride for index in inner) == strides and {"k", ""}.issuperset(index.axis for index in inner):
            return each.value if first.axis != "k" else None
    return None


def _fault(op: ir.Operation, quantisers: Collection[ir.Operation]) -> str:
    """Returns what is wrong with an operation, or ""."""
    if op.name in _FUNCTIONS and len(op.regions[0].blocks) and graph.is_public(op):
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        if any(in_bytes(each) != each for each in (*kind.inputs, *kind.results)):
            return (
                "has no arguments and results of 4- and 6-bit floats, only bytes (i8) with an iree_tensor_ext.bitcast"
            )
    if op.name == "arith.truncf" and "f4E2M1FN" in str(op.results[0].type):
        return "rounds f4E2M1FN wrongly"
    decision = decision_of(op)
    if decision is not None and decision.warning:
        return "computes this scaled matmul of 6 or 8 bits wrongly or not at all"
    if op.name == "tensor.extract_slice" and is_narrow_tensor(op.results[0]) and len(op.operands) > 1:
        return "cannot slice elements of less than a byte at dynamic offsets"
    if op.name == PAD and is_narrow_tensor(op.results[0]):
        return "cannot pad elements of less than a byte"
    if op.name in (*WRITES, *_PASSES_ON) and any(is_six_bit(value.type) for value in (*op.operands, *op.results)):
        return "cannot join 6-bit elements, nor keep them in variables, loops, branches and functions"
    if op.name == "tensor.extract_slice" and has_idle_steps(op):
        return "fails over a step along a dimension of which one element is taken"
    if is_misread(op):
        return "may look elements of a part of a tensor up in wrong rows"
    if has_single_key(op):
        return "crashes over attention of a single key"
    if op.name in TOPK:
        return "computes this wrongly on GPUs"
    if is_exclusive(op) or is_filled(op):
        return "lets threads of a workgroup race over this scan"
    if repeats(op) or may_be_one(op):
        return "takes what it reads and what it writes over for one buffer"
    if repeated(op):
        return "cannot compile this together with what computes its operands"
    if unread(op):
        return "may mix rows up of which it sorts more than it returns"
    if any(_is_needed_elsewhere(value, op) for value in written(op)):
        return "may write over a tensor that something else reads"
    if indexing_maps(op) is None or len(op.results) != 1:
        return ""
    if is_fatal(op):
        return "may crash over a product of so few rows of 16-bit floats"
    if any(is_six_bit(value.type) for value in (*op.operands, *op.results)):
        return "cannot load or store 6-bit elements"
    if is_narrow_tensor(op.results[0]) and op not in quantisers:
        return "stores elements of less than a byte so that they may overwrite each other"
    return ""


def _is_needed_elsewhere(value: ir.Value, writer: ir.Operation) -> bool:
    """Returns whether IREE overlooks a reader of what an operation writes over. See mxcomp-place-results,
    -keep-for-steps and -keep-for-callers.
    """
    source = graph.look_through_views(value)
    op = graph.producer(source)
    users = [use.owner.operation for use in source.uses]
    if op is not None and _is_made_of_nothing(op) and (len(users) > 1 or _has_twin(op)):
        return True
    if op is None and any(user.name in _RETURNS for user in users):
        return True
    scope = source.owner.owner if op is None else op.parent
    return writer.parent != scope and writer.parent.name.startswith("scf.")


def _is_made_of_nothing(op: ir.Operation) -> bool:
    return op.name.startswith("linalg.") and len(op.operands) == 1


def _has_twin(op: ir.Operation) -> bool:
    """Returns whether CSE may merge an operation without operands with an equal one."""
    kind = op.results[0].type
    others = (other for other in graph.walk(graph.root(op), bodies=False) if other != op)
    return any(_is_made_of_nothing(other) and other.results[0].type == kind for other in others)
