"""A checkpoint that passes through tensor by tensor does not stay in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from parameters import safetensors

from mxcomp.weights import archive, paging
from mxcomp.weights.checkpoint import Checkpoint

COUNT, SIZE = 8, 2**20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is resident")


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


class Watched(Mapping[str, np.ndarray]):
    """A checkpoint's tensors; `seen` is how much of its file was resident each time that one was asked for."""

    def __init__(self, path: Path) -> None:
        self._tensors, self._path = Checkpoint.read(path), path
        self.seen: list[int] = []

    def __getitem__(self, key: str) -> np.ndarray:
        self.seen.append(resident(self._path))
        return self._tensors[key].data

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A checkpoint, where memory can be given back: not in a file system that is in memory itself."""
    tensors = {f"w{i}": ("U8", np.full(SIZE, i, np.uint8)) for i in range(COUNT)}
    path = safetensors(tmp_path / "model.safetensors", tensors)
    with path.open("rb") as written:
        os.fsync(written.fileno())  # what is not on the disk yet is not given back
    data = Checkpoint.read(path)["w0"].data
    assert data.max() == 0
    paging.give_back(data)
    if resident(path) > SIZE // 2:
        pytest.skip("the system does not take pages of this file back")
    return path


def test_one_tensor_is_in_memory(file: Path, tmp_path: Path) -> None:
    tensors = Watched(file)
    archive.save(tmp_path / "model.irpa", tensors)
    assert len(tensors.seen) >= COUNT and max(tensors.seen) < COUNT * SIZE // 2
    written = Checkpoint.read(tmp_path / "model.irpa")
    assert [np.unique(written[f"w{i}"].data).tolist() for i in range(COUNT)] == [[i] for i in range(COUNT)]


def test_nothing_is_lost() -> None:
    """Memory that belongs to no file, and parts of pages."""
    data = np.arange(100_000, dtype=np.uint32)
    for part in (data, data[1:], data[:0], data[::2]):
        paging.give_back(part)
    np.testing.assert_array_equal(data, np.arange(100_000, dtype=np.uint32))
