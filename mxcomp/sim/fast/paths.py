"""Register checks for compiled code: findings depend on a wave's path through the code alone, so paths are cached.

A `Node` stands for all that the past can mean to these checks; an edge, for one more segment, holds what was found on
it. The checks themselves are those of the NumPy engine, made once per edge; after that a wave only follows edges.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from mxcomp.sim.checks.hazards import HazardTracker
from mxcomp.sim.checks.registers import Facts, Origin, check_registers
from mxcomp.sim.checks.report import Numbered, Reporter
from mxcomp.sim.checks.waits import Issuer, Outstanding, Transfer
from mxcomp.sim.findings import Severity
from mxcomp.sim.instruction import Instruction, RegisterSet


class Note(NamedTuple):
    """A finding of some wave."""

    check: str
    message: str
    instruction: Instruction
    severity: Severity


class Notes(Reporter):
    """Collects what is found of some wave, with the switches of another reporter."""

    def __init__(self, watch: Reporter) -> None:
        vars(self).update(vars(watch))
        self.notes: list[Note] = []

    def __call__(
        self, check: str, message: str, wave: Numbered, instruction: Instruction,
        lane: int | None = None, address: int | None = None, severity: Severity = Severity.ERROR,
    ) -> None:  # fmt: skip
        self.notes.append(Note(check, message, instruction, severity))


class Track:
    """A wave as these checks see it."""

    number = 0
    barriers = 0

    def __init__(self, defined: RegisterSet, watch: Reporter) -> None:
        self.busy: RegisterSet = 0
        self.defined = defined
        self.origins: dict[int, Origin] = {}
        self.outstanding, self.hazards = Outstanding(), HazardTracker()
        self.report = Notes(watch)

    @property
    def shadow(self) -> Track:
        return self

    def land(self, wave: Issuer, transfer: Transfer) -> None:
        """Does nothing: LDS is checked elsewhere."""

    def follow(self, facts: Facts) -> None:
        """Checks one instruction."""
        check_registers(self, facts)
        if facts.flight is not None:
            self.outstanding.issue(self, Transfer(facts.flight))
        elif facts.wait is not None:
            self.outstanding.wait(self, *facts.wait)

    def copy(self) -> Track:
        other = Track(self.defined, self.report)
        other.origins = dict(self.origins)
        other.busy, other.outstanding, other.hazards = self.busy, self.outstanding.copy(), copy(self.hazards)
        return other

    def key(self) -> Hashable:
        queues = (self.outstanding.vector, self.outstanding.lgkm)
        flying = tuple(tuple((t.instruction.offset, t.counters) for t in queue) for queue in queues)
        undefined = [(k, origin) for k, origin in self.origins.items() if not self.defined >> k & 1]
        origins = frozenset((k, origin.instruction.offset, origin.register) for k, origin in undefined)
        return self.busy, self.defined, origins, flying, self.hazards.key()


class Edge(NamedTuple):
    """A segment's successor, and the findings on the way there."""

    node: Node
    notes: tuple[Note, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A wave's state between segments. Copy its track before following on."""

    track: Track
    edges: dict[Hashable, Edge] = field(default_factory=dict)


class Paths:
    """All nodes of a program, for one choice of checks.

    Args:
        segments: Instructions of each segment.
    """

    def __init__(self, segments: Sequence[Sequence[Facts]], watch: Reporter) -> None:
        self._segments, self._watch = segments, watch
        self._nodes: dict[Hashable, Node] = {}

    def start(self, defined: RegisterSet) -> Node:
        """Returns the state before the first instruction."""
        return self._node(Track(defined, self._watch))

    def follow(self, node: Node, segments: Iterable[int], found: Callable[[Note], None]) -> Node:
        """Returns the state after segments that were executed."""
        for number in segments:
            edge = node.edges.get(number) or self._extend(node, number, self._segments[number])
            node = edge.node
            for note in edge.notes:
                found(note)
        return node

    def step(self, node: Node, key: Hashable, facts: Facts, found: Callable[[Note], None]) -> Node:
        """Returns the state after one instruction that belongs to no segment; the key tells it from others."""
        edge = node.edges.get(key) or self._extend(node, key, (facts,))
        for note in edge.notes:
            found(note)
        return edge.node

    def _extend(self, node: Node, key: Hashable, instructions: Iterable[Facts]) -> Edge:
        track = node.track.copy()
        for facts in instructions:
            track.follow(facts)
        edge = node.edges[key] = Edge(self._node(track), tuple(track.report.notes))
        return edge

    def _node(self, track: Track) -> Node:
        return self._nodes.setdefault(track.key(), Node(track))
