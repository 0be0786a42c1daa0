"""Rotary embeddings of many tokens, and transposed values, by one kernel: bit for bit, on the simulator."""

from __future__ import annotations

from pathlib import Path
from string import Template

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxcomp
from mxcomp.passes import join_rotations

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
MODULE = Template((Path(__file__).parent / "rotations.mlir.in").read_text())


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(x.dtype).astype(np.float64)

    wide, half = x.astype(np.float64), x.shape[-1] // 2
    turned = np.concatenate([-wide[..., half:], wide[..., :half]], -1)
    one, other = rounded(wide * cos.astype(np.float64)), rounded(turned * sin.astype(np.float64))
    return (one + other).astype(x.dtype)


def check(
    batch: int, tokens: int, heads: tuple[int, int], size: int, kind: str, is_one: bool = True, dynamic: str = ""
) -> None:
    """Compares results; `dynamic` is the size that the program knows, "batch" or "tokens"."""
    q_columns, k_columns = (count * size for count in heads)
    columns = q_columns + 2 * k_columns
    sizes: dict[str, int | str] = {"batch": batch, "tokens": tokens, "rows": batch * tokens}
    known = {**sizes, **dict.fromkeys((dynamic, "rows") if dynamic else (), "?")}
    given = {f"of_{name}": f"%{name}" if known[name] == "?" else size for name, size in sizes.items()}
    text = MODULE.substitute(
        known, **given, heads=heads[0], groups=heads[1], size=size, half=size // 2, columns=columns,
        q_columns=q_columns, k_columns=k_columns, v_columns=k_columns, v_first=q_columns + k_columns, type=kind,
        dynamic=f"%{dynamic}" if dynamic else "",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_rotations, "_FEW", 0)
        program = mxcomp.compile(text, strict=True)
    rng = np.random.default_rng(tokens * size)
    x, cos, sin = (
        rng.standard_normal(shape).astype(TYPES[kind])
        for shape in ((batch * tokens, columns), (tokens, size), (tokens, size))
    )
    found = program.run(x, cos, sin)
    parts = x.reshape(batch, tokens, -1, size).transpose(0, 2, 1, 3)
    q, k, v = np.split(parts, [heads[0], heads[0] + heads[1]], axis=1)
    for made, expected in zip(found, (rotated(q, cos, sin), rotated(k, cos, sin), v), strict=True):
        assert np.array_equal(made, expected)
    assert (len(program.profile(x, cos, sin, execute=False).called) == 1) == is_one


@pytest.mark.parametrize(
    ("batch", "tokens", "heads", "size", "kind", "dynamic"),
    [
        (1, 33, (8, 2), 64, "bf16", "tokens"),
        pytest.param(3, 70, (6, 6), 80, "f16", "", marks=pytest.mark.slow),
        pytest.param(3, 17, (4, 2), 64, "f32", "batch", marks=pytest.mark.slow),
    ],
)
def test_results(batch: int, tokens: int, heads: tuple[int, int], size: int, kind: str, dynamic: str) -> None:
    check(batch, tokens, heads, size, kind, dynamic=dynamic)


@pytest.mark.slow
def test_values_of_several_sequences_are_apart() -> None:
    """Rows of sequences of a dynamic length are not followed to those of a product."""
    check(2, 17, (80, 16), 104, "bf16", is_one=False, dynamic="tokens")


@pytest.mark.slow
def test_many_heads_in_turns() -> None:
    """A workgroup has 1248 pieces of 96 heads: more than threads."""
    check(1, 7, (72, 12), 104, "f32")


@pytest.mark.slow
def test_a_single_head_of_keys_is_apart() -> None:
    """Without dimensions of 1, keys and values have another rank than queries."""
    check(1, 33, (8, 1), 64, "bf16", is_one=False)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    groups, keys = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 5))
    batch, tokens = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 70))
    size = 2 * data.draw(st.sampled_from((4, 8, 16, 20, 24, 32, 36, 64)))
    kind, dynamic = data.draw(st.sampled_from(list(TYPES))), data.draw(st.sampled_from(("", "batch", "tokens")))
    check(batch, tokens, (groups * keys, keys), size, kind, batch == 1 or dynamic != "tokens", dynamic)
