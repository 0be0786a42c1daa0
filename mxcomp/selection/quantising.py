"""Models a matmul whose ukernel quantises the LHS in registers, and the alternative with a separate dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from mxcomp.layout import LHS
from mxcomp.layout.problem import Problem
from mxcomp.registry import AnyInstance, Registry, Ukernel
from mxcomp.selection import streaming
from mxcomp.selection.times import UNKNOWN, Matmul, modelled, replays, with_rows
from mxcomp.target import Target
from mxcomp.ukernels import quantising


def modelled_us(ukernel: Ukernel, problem: Problem, size: int) -> float:
    """Returns µs of a problem with a ukernel that quantises.

    What it loads, and so its time, goes with the rows that are there: the table has it for the fewest, and for all.
    Of more than all there are several tiles.
    """
    instance, m = ukernel.instance, problem.m or 0
    assert isinstance(instance, quantising.Instance)
    rows, columns, k_tile = ukernel.tile
    problem, tile = (
        replace(problem, n=instance.matrices * (problem.n or 0)),
        (rows, instance.matrices * columns, k_tile),
    )
    known = {rows: replays(instance, ukernel.target, with_rows(rows)) for rows in instance.timed_rows}
    known = {max(m, rows) if rows == instance.most_rows else rows: each for rows, each in known.items()}
    us = {
        rows: modelled(replace(each, row_bits=instance.bits), tile, Matmul(replace(problem, m=rows), size))
        for rows, each in known.items()
        if each is not None
    }
    return float(np.interp(m, list(us), list(us.values()))) if len(us) == len(known) else UNKNOWN


def times(
    instances: Iterable[AnyInstance], problem: Problem, registry: Registry, size: int
) -> dict[AnyInstance, float]:
    """Returns µs of the ukernels that the GPU can run."""
    return {each: modelled_us(registry[each.name], problem, size) for each in registry.runnable(instances)}


def takes(instance: quantising.Instance, problem: Problem, bits: int) -> bool:
    """Returns whether an instance computes a problem whose LHS is quantised from activations of so many bits."""
    m, n, k = (problem.sizes[axis] or 0 for axis in "mnk")
    return instance.types == problem.types and instance.bits == bits and instance.covers(m, n, k)


def separate_us(target: Target, problem: Problem, bits: int) -> float:
    """Returns µs of a separate dispatch that quantises the LHS, from activations of so many bits."""
    return streaming.quantising_us(target, problem.m or 0, problem.k or 0, problem.types[LHS], bits / 8)
