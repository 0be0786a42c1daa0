"""Every instruction of the semantics' tables gives what its independent reference says."""

from __future__ import annotations

import numpy as np
import pytest

from mxcomp.sim.semantics import SCALAR, VECTOR, unsupported
from mxcomp.sim.semantics.memory import ATOMICS
from properties import atomics, conversion, floating, integer, lanes, modifiers, packed, scalar
from properties.atomics import check_atomic
from properties.bench import State, check_instruction, check_scalar, check_vector
from properties.exact import to_bits
from properties.rows import oracle, vector_instruction

VECTORS = integer.TABLE | floating.TABLE | packed.TABLE | conversion.TABLE | lanes.TABLE


def _problems(found: list[str | None]) -> str:
    return "\n".join(problem for problem in found if problem)


@pytest.mark.parametrize("part", range(4))
def test_vector(part: int) -> None:
    """Two waves of each instruction, with all lanes and with some."""
    found = [check_vector(name, VECTORS[name], rounds=2) for name in sorted(VECTORS)[part::4]]
    assert not any(found), _problems(found)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_vector_on_more_values(part: int) -> None:
    found = [check_vector(name, VECTORS[name], seed=1, rounds=20) for name in sorted(VECTORS)[part::4]]
    assert not any(found), _problems(found)


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_scalar(count: int) -> None:
    found = [check_scalar(name, row, count) for name, row in scalar.TABLE.items()]
    assert not any(found), _problems(found)


def test_atomics() -> None:
    found = [check_atomic(name, kind, function) for name, (kind, function) in atomics.TABLE.items()]
    assert not any(found), _problems(found)


def test_every_instruction_has_a_reference() -> None:
    assert set(VECTORS) == set(VECTOR)
    assert set(scalar.TABLE) == set(SCALAR)
    assert set(atomics.TABLE) == set(ATOMICS)


@pytest.mark.parametrize("name", floating.CORNERS)
def test_corners_of_approximations(name: str) -> None:
    i = vector_instruction(name, VECTOR[name])
    for argument, value in floating.CORNERS[name]:
        state = State.random(np.random.default_rng(0), partial=False)
        state.put(i.src[0], to_bits(argument, "f32"))
        oracle(i, state.vectors, state.scalars)
        assert state.lane(i.dst[0], 0) == to_bits(value, "f32"), f"{name}({argument})"


@pytest.mark.parametrize("kind", modifiers.cases())
def test_modifiers(kind: str) -> None:
    """Modifiers act in all lanes, or in some that are drawn."""
    found = []
    for number, (i, row) in enumerate(modifiers.cases()[kind]):
        assert unsupported(i) is None, i
        rng = np.random.default_rng(number)
        problem = check_instruction(i, row, rng, partial=bool(rng.integers(2)))
        found.append(problem and f"{i} {i.src} {i.dpp}: {problem}")
    assert not any(found), _problems(found)
