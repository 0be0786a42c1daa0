"""Models a matmul whose ukernel quantises the LHS in registers, and the alternative with a separate dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from mxcomp.layout import LHS
from mxcomp.layout.problem import Problem
from mxcomp.registry import AnyInstance, Registry, Ukernel
from mxcomp.selection import streaming
from mxcomp.selection.times import modelled, replays, with_rows
from mxcomp.target import Target
from mxcomp.ukernels import quantising


def modelled_us(ukernel: Ukernel, problem: Problem, size: int) -> float | None:
    """Returns µs of a problem with a ukernel that quantises, or None where its times are not known.

    What it loads, and so its time, goes with the rows that are there: the table has it for the fewest, and for all.
    Of more than all there are several tiles.
    """
    instance, (m, n, k) = ukernel.instance, (problem.sizes[axis] or 0 for axis in "mnk")
    assert isinstance(instance, quantising.Instance)
    tile, count = ukernel.tile, instance.matrices
    n, tile = count * n, (tile[0], count * tile[1], tile[2])
    known = {rows: replays(instance, ukernel.target, with_rows(rows)) for rows in instance.timed_rows}
    known = {max(m, rows) if rows == instance.most_rows else rows: each for rows, each in known.items()}
    us = [
        modelled(replace(each, row_bits=instance.bits), tile, problem, {"m": rows, "n": n, "k": k}, size)
        for rows, each in known.items()
        if each is not None
    ]
    return float(np.interp(m, list(known), us)) if len(us) == len(known) else None


def times(
    instances: Iterable[AnyInstance], problem: Problem, registry: Registry, size: int
) -> dict[AnyInstance, float]:
    """Returns µs of the ukernels that the GPU can run, where they are known."""
    each = (
        (instance, modelled_us(registry[instance.name], problem, size)) for instance in registry.runnable(instances)
    )
    return {instance: us for instance, us in each if us is not None}


def takes(instance: quantising.Instance, problem: Problem, bits: int) -> bool:
    """Returns whether an instance computes a problem whose LHS is quantised from activations of so many bits."""
    m, n, k = (problem.sizes[axis] or 0 for axis in "mnk")
    return instance.types == problem.types and instance.bits == bits and instance.covers(m, n, k)


def separate_us(target: Target, problem: Problem, bits: int) -> float:
    """Returns µs of a separate dispatch that quantises the LHS, from activations of so many bits."""
    return streaming.quantising_us(target, problem.m or 0, problem.k or 0, problem.types[LHS], bits / 8)
