"""Models a matmul whose ukernel quantises the LHS in registers, and the alternative with a separate dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from mxcomp.layout import LHS
from mxcomp.layout.problem import Problem
from mxcomp.registry import AnyInstance, Registry, Ukernel
from mxcomp.selection import streaming
from mxcomp.selection.times import UNKNOWN, KernelTimes, Matmul, modelled, replays, with_rows
from mxcomp.target import Target
from mxcomp.ukernels import quantising


def replays_of_rows(instance: quantising.Instance, target: Target) -> dict[int, KernelTimes]:
    """Returns the times of a ukernel that quantises for the fewest rows of its tile, and for all; none if not known.

    What it loads, and so its time, goes with the rows that are there.
    """
    found = [replays(instance, target, with_rows(rows)) for rows in instance.timed_rows]
    known = [replace(each, row_bits=instance.bits) for each in found if each is not None]
    return dict(zip(instance.timed_rows, known, strict=True)) if len(known) == len(found) else {}


def modelled_us(ukernel: Ukernel, problem: Problem, size: int) -> float:
    """Returns µs of a problem with a ukernel that quantises. Of more rows than its tile has there are several tiles."""
    instance, m = ukernel.instance, problem.m or 0
    assert isinstance(instance, quantising.Instance)
    (rows, columns, k), count = ukernel.tile, instance.matrices
    work = Matmul(replace(problem, n=count * (problem.n or 0)), size)
    us = dict[int, float]()
    for most, known in replays_of_rows(instance, ukernel.target).items():
        at = max(m, most) if most == instance.most_rows else most
        us[at] = modelled(known, (rows, count * columns, k), replace(work, problem=replace(work.problem, m=at)))
    return float(np.interp(m, list(us), list(us.values()))) if us else UNKNOWN


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
