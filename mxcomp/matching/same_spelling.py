"""Compares the computation of a value with a template, operation by operation, back to its inputs."""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir

from mxcomp.mlir import graph

Found = dict[ir.Value, ir.Value]
"""The template's values, including block arguments, and the matching values."""


def find(value: ir.Value, template: ir.Value, known: Found | None = None) -> Found | None:
    """Returns the matching values, of which some may be known, if a value is computed like the template; else None."""
    found: Found = known or {}
    return found if _is_same(value, template, found) else None


def _is_same(value: ir.Value, template: ir.Value, found: Found) -> bool:
    if template in found:
        return found[template] == value
    if value.type != template.type:
        return False
    theirs = graph.producer(template)
    if theirs is not None:
        ours = graph.producer(value)
        if ours is None or ir.OpResult(value).result_number != ir.OpResult(template).result_number:
            return False
        if not _is_same_op(ours, theirs, found):
            return False
    found[template] = value
    return True


def _is_same_op(ours: ir.Operation, theirs: ir.Operation, found: Found) -> bool:
    operands = list(ours.operands), list(theirs.operands)
    if ours.name != theirs.name or _attributes(ours) != _attributes(theirs) or len(operands[0]) != len(operands[1]):
        return False
    if not all(_is_same(value, template, found) for value, template in zip(*operands, strict=True)):
        return False
    blocks = list(_blocks(ours)), list(_blocks(theirs))
    return len(blocks[0]) == len(blocks[1]) and all(_is_same_block(*pair, found) for pair in zip(*blocks, strict=True))


def _is_same_block(ours: ir.Block, theirs: ir.Block, found: Found) -> bool:
    arguments = list(ours.arguments), list(theirs.arguments)
    if [each.type for each in arguments[0]] != [each.type for each in arguments[1]]:
        return False
    found.update(zip(arguments[1], arguments[0], strict=True))
    end, other = (list(block.operations)[-1].operation for block in (ours, theirs))
    return _is_same_op(end, other, found)


def _blocks(op: ir.Operation) -> Iterator[ir.Block]:
    for region in op.regions:
        yield from region.blocks


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}
