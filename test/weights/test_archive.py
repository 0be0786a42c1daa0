"""Archives of parameters that are written tensor by tensor, read by IREE."""

from __future__ import annotations

import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from iree import runtime as rt

from mxcomp.errors import InputError
from mxcomp.weights.archive import Later, Streamed, save
from mxcomp.weights.checkpoint import Checkpoint

RNG = np.random.default_rng(0)
TENSORS = {
    "model.layers.0.weight": RNG.integers(0, 256, (37, 129), np.uint8),
    "β": np.arange(5, dtype=np.float32),
    "transposed": np.arange(12, dtype=np.int64).reshape(3, 4).T,
    "half": np.ones((2, 3), ml_dtypes.bfloat16),
    "one": np.array(7, np.uint8),
}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_iree_reads_it(count: int, tmp_path: Path) -> None:
    tensors = dict(list(TENSORS.items())[:count])
    save(tmp_path / "p.irpa", tensors)
    index = rt.ParameterIndex()
    index.load(str(tmp_path / "p.irpa"))
    assert [key for key, _ in index.items()] == list(tensors)
    found = Checkpoint.read(tmp_path / "p.irpa")
    assert {key: tensor.data.tobytes() for key, tensor in found.items()} == {
        key: tensor.tobytes() for key, tensor in tensors.items()
    }
    assert (tmp_path / "p.irpa").stat().st_size % 4096 == 0


def test_data_is_where_iree_puts_it(tmp_path: Path) -> None:
    """IREE reads the same from an archive of its own, and finds data aligned as in that."""
    ours, theirs = tmp_path / "ours.irpa", tmp_path / "theirs.irpa"
    plain = {key: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for key, array in TENSORS.items()}
    save(ours, TENSORS)
    rt.save_archive_file(plain, theirs)
    first, second = Checkpoint.read(ours), Checkpoint.read(theirs)
    assert set(first) == set(second)
    for key, tensor in first.items():
        assert tensor.data.tobytes() == second[key].data.tobytes()
        assert tensor.data.ctypes.data % 64 == 0


def test_one_tensor_at_a_time(tmp_path: Path) -> None:
    made: list[weakref.ref[np.ndarray]] = []

    def make(value: int) -> np.ndarray:
        assert all(each() is None for each in made[:-1])  # the last one may be held by the loop that asks for the next
        array = np.full(1000, value, np.uint8)
        made.append(weakref.ref(array))
        return array

    save(tmp_path / "p.irpa", Streamed({str(i): Later(1000, lambda i=i: make(i)) for i in range(6)}))
    assert [int(tensor.data[-1]) for tensor in Checkpoint.read(tmp_path / "p.irpa").values()] == list(range(6))
    assert len(made) == 6


def test_a_tensor_of_another_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'w' has 3 bytes, expected 4"):
        save(tmp_path / "p.irpa", Streamed({"w": Later(4, lambda: np.zeros(3, np.uint8))}))
    assert not list(tmp_path.iterdir())
