"""mxcomp-skip-versions: runs only the chosen one of a matmul's versions for ranges of M.

Before:

    %few  = flow.dispatch @few::@few[%m](%lhs, %rhs, %m) : (…) -> tensor<?x512xf32>{%m}
    %many = flow.dispatch @many::@many[%m](%lhs, %rhs, %m) : (…) -> tensor<?x512xf32>{%m}
    %r    = arith.select %is_few, %few, %many {mxcomp.versions} : tensor<?x512xf32>

After:

    %many = flow.dispatch @many::@many[%m, %runs_many](%lhs, %rhs, %m) : (…) -> tensor<?x512xf32>{%m}
    %r    = flow.dispatch @few::@few[%m, %runs_few](%lhs, %rhs, %m, %many) : (…) -> %many{%m}

A dispatch that is not to run has no workgroups, which drivers skip; all write to one result. So there is nothing to
wait for on the host, as there would be behind a branch: all of a program's dispatches go to the GPU together.

What packs an operand for some of the versions only, as others quantise it themselves, runs if one of those does.

    flow.executable.export public @few workgroups(%m: index, %runs: index) -> (index, index, index) {
      %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%m)
      %n = arith.muli %x, %runs : index
      flow.return %n, %y, %z : index, index, index
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.errors import CompileError
from mxcomp.matching.decision import VERSIONS
from mxcomp.matching.sizes import Sizes
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, dispatches, graph, linalg_ops
from mxcomp.mlir.dispatches import DISPATCH
from mxcomp.mlir.rematerialise import Rematerialiser

_VIEWS = (*BITCASTS, "flow.tensor.reshape", *graph.VIEWS)


def run(module: ir.Operation) -> None:
    """Chains the dispatches among which marked selections below `module` choose. Raises CompileError."""
    for block in {choice.block for choice in _choices(module)}:
        _follow_sizes(block)
    if not (choices := _choices(module)):
        return
    inner = {choice.operands[2].owner.operation for choice in choices}
    executables = graph.executables(module)
    together = dict[tuple[_Version, ...], list[ir.Operation]]()
    for choice in choices:
        if choice not in inner:  # not parts of others
            together.setdefault(tuple(_versions(choice)[0]), []).append(choice)
    chains = [_chain(versions, of, executables) for versions, of in together.items()]
    _skip_packing(chains, executables)


def _choices(module: ir.Operation) -> list[ir.Operation]:
    return [op for op in graph.walk(module, bodies=False) if VERSIONS in op.attributes]


def _follow_sizes(block: ir.Block) -> None:
    """Asks for sizes of matmuls where they come from, not what is computed between: so they are known in front of it.

    What is assumed of them stays, as code generation relies on it.
    """
    sizes, sources = Sizes(), list[ir.Value]()
    for op in [view.operation for view in block.operations if view.operation.name == "util.assume.int"]:
        for position, asked in enumerate(op.operands):
            dim, size = graph.producer(asked, "tensor.dim"), sizes.of_index(asked)
            if dim is not None and size.factor.denominator == 1:
                with dim.location, ir.InsertionPoint(dim):
                    op.operands[position] = size.build()
                sources.append(asked)
    for op in [view.operation for view in block.operations if view.operation.name == "tensor.dim"]:
        sources.append(op.operands[0])
        linalg_ops.ask_init(op)
    graph.erase_unused(sources)


@dataclass(frozen=True)
class _Version:
    """A dispatch, and the condition by which it is chosen if none before it is; None for the last."""

    call: ir.Operation
    condition: ir.Value | None


@dataclass(frozen=True)
class _Chain:
    """The calls of versions, and the condition of each."""

    calls: list[ir.Operation]
    conditions: list[ir.Value | None]


def _chain(versions: Sequence[_Version], results: Sequence[ir.Operation], executables: _Executables) -> _Chain:
    """Chains versions, of whose results these operations choose."""
    conditions, calls = [version.condition for version in versions], list[ir.Operation]()
    choice = graph.in_order(results)[0]
    with choice.location, ir.InsertionPoint(choice):
        runs = _exclusive(conditions)
        for version, active in reversed(list(zip(versions, runs, strict=True))):
            _make_optional(_executable(version.call, executables), version.call, is_tied=bool(calls))
            calls.append(_called(version.call, active, list(calls[-1].results) if calls else ()))
    choices = [op for each in results for op in _versions(each)[1]]
    for each in results:
        number = ir.OpResult(each.operands[1]).result_number
        each.results[0].replace_all_uses_with(calls[-1].results[number])
    for op in (*choices, *(version.call for version in versions)):
        op.erase()
    return _Chain(calls[::-1], conditions)


def _versions(choice: ir.Operation) -> tuple[list[_Version], list[ir.Operation]]:
    """Returns the dispatches in the order in which their conditions are tested, and the selections, users first."""
    versions, choices, op = [], [], choice
    while VERSIONS in op.attributes:
        condition, made, others = op.operands
        versions.append(_Version(made.owner.operation, condition))
        choices.append(op)
        op = others.owner.operation
    versions.append(_Version(op, None))
    if odd := [version.call for version in versions if version.call.name != DISPATCH]:
        raise CompileError(f"{odd[0].location}: expected a dispatch of a version, got {odd[0].name}")
    return versions, choices


def _exclusive(conditions: list[ir.Value | None]) -> list[ir.Value]:
    """Returns values that are 1 for the first true condition, or for the last version if none is true, else 0."""
    rest: ir.Value = build.constant_index(1)
    zero, found = build.constant_index(0), list[ir.Value]()
    for condition in conditions:
        found.append(rest if condition is None else arith.SelectOp(condition, rest, zero).result)
        if condition is not None:
            rest = arith.SelectOp(condition, zero, rest).result
    return found


_Executables: TypeAlias = Mapping[str, ir.Operation]


def _executable(call: ir.Operation, executables: _Executables) -> ir.Operation:
    return executables[dispatches.entry_point(call).executable]


def _make_optional(executable: ir.Operation, call: ir.Operation, is_tied: bool) -> None:
    """Gives an export's number of workgroups one more operand, by which it is multiplied.

    With `is_tied` the function writes to what it is given, which has that place among its arguments already.
    """
    (export,) = (op for op in graph.walk(executable) if op.name == "flow.executable.export")
    block = export.regions[0].blocks[0]
    runs = block.add_argument(ir.IndexType.get(), call.location)
    finish = list(block.operations)[-1].operation
    with ir.InsertionPoint(finish), call.location:
        finish.operands[0] = arith.MulIOp(finish.operands[0], runs).result
    if is_tied:
        (function,) = (op for op in graph.walk(executable) if op.name == "func.func")
        _make_read_write(function, len(call.results))


def _make_read_write(function: ir.Operation, results: int) -> None:
    """Lets a function read what it writes, as for results that are tied to operands."""
    arguments = list(function.regions[0].blocks[0].arguments)
    pending: list[ir.Value] = arguments[len(arguments) - results :]
    while pending:
        value = pending.pop()
        value.set_type(ir.Type.parse(str(value.type).replace("<writeonly:", "<readwrite:")))
        users = (use.owner.operation for use in value.uses)
        pending += [user.results[0] for user in users if user.name == "flow.dispatch.tie_shape"]
    inputs = [argument.type for argument in arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))


def _called(call: ir.Operation, active: ir.Value, written: Sequence[ir.Value] = ()) -> ir.Operation:
    """Copies the dispatch with workgroups only if `active` is 1, writing to what is `written` if given."""
    if not written:
        return dispatches.with_operands(call, [active])
    first = dispatches.arguments(call)
    tied = dispatches.tied(range(first, first + len(written)))
    return dispatches.with_operands(call, [active], written, dispatches.result_dims(call), tied_operands=tied)


def _skip_packing(chains: list[_Chain], executables: _Executables) -> None:
    """Gives dispatches that only some versions need no workgroups if none of these runs."""
    positions = {call: (chain, i) for chain in chains for i, call in enumerate(chain.calls)}
    for packing in dict.fromkeys(source for call in positions for source in _sources(call) if source not in positions):
        users = [positions.get(user) for user in _users(packing)]
        of_chains: dict[int, tuple[_Chain, set[int]]] = {}
        for chain, i in filter(None, users):
            of_chains.setdefault(id(chain), (chain, set()))[1].add(i)
        if None in users or any(len(chain.calls) == len(used) for chain, used in of_chains.values()):
            continue
        before = Rematerialiser(packing)
        if all(each is None or before.can_get(each) for chain, _ in of_chains.values() for each in chain.conditions):
            _skip(packing, list(of_chains.values()), before, executables)


def _skip(
    packing: ir.Operation, users: list[tuple[_Chain, set[int]]], before: Rematerialiser, executables: _Executables
) -> None:
    """Makes a dispatch run only if one of these versions of chains does."""
    with packing.location, ir.InsertionPoint(packing):
        runs: ir.Value | None = None
        for chain, used in users:
            active = _exclusive([None if each is None else before.get(each) for each in chain.conditions])
            for i in sorted(used):
                runs = active[i] if runs is None else arith.MaxUIOp(runs, active[i]).result
        assert runs is not None
        made = _called(packing, runs)
    _make_optional(_executable(packing, executables), packing, is_tied=False)
    graph.replace(packing, *made.results)


def _sources(call: ir.Operation) -> Iterator[ir.Operation]:
    """Returns the dispatches whose results a call takes."""
    for operand in call.operands:
        if (source := graph.producer(graph.look_through(operand, _VIEWS), DISPATCH)) is not None:
            yield source


def _users(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yields the users of an operation's results, directly or through views."""
    for user in (use.owner.operation for result in op.results for use in result.uses):
        if user.name in _VIEWS:
            yield from _users(user)
        elif user.name != "tensor.dim":
            yield user
