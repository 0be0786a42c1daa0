"""Damaged files end in a result or in one line of an error: never in a traceback, whatever reads them."""

from __future__ import annotations

import io
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mutants import damaged, mutated

import mxcomp
from mxcomp.errors import InputError
from mxcomp.layout.problem import Problem
from mxcomp.profiling import reports
from mxcomp.report import Report
from mxcomp.selection import tuned_lines
from mxcomp.selection.tuned_lines import Key, Line
from mxcomp.tools import pack, show, sim
from mxcomp.weights.checkpoint import Checkpoint, save

SIM = Path(__file__).parents[1] / "sim"
RNG = np.random.default_rng(3)
ELEMENTS = RNG.integers(0, 256, (64, 4, 16), np.uint8)
SCALES = RNG.integers(100, 140, (64, 4), np.uint8)
LAYER = """
func.func @main(%x: tensor<16x4x32xf8E4M3FN>, %x_scales: tensor<16x4xf8E8M0FNU>) -> tensor<16x64xf32> {
  %bytes = flow.tensor.constant #flow.parameter.named<"model"::"fc.weight"> : tensor<64x64xi8>
  %stored = flow.tensor.constant #flow.parameter.named<"model"::"fc.weight_scale"> : tensor<64x4xi8>
  %w = iree_tensor_ext.bitcast %bytes : tensor<64x64xi8> -> tensor<64x4x32xf4E2M1FN>
  %w_scales = iree_tensor_ext.bitcast %stored : tensor<64x4xi8> -> tensor<64x4xf8E8M0FNU>
  %zeros = arith.constant dense<0.0> : tensor<16x64xf32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(m, n, k, b) -> (m, k, b)>, affine_map<(m, n, k, b) -> (n, k, b)>,
                     affine_map<(m, n, k, b) -> (m, k)>, affine_map<(m, n, k, b) -> (n, k)>,
                     affine_map<(m, n, k, b) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  } ins(%x, %w, %x_scales, %w_scales : tensor<16x4x32xf8E4M3FN>, tensor<64x4x32xf4E2M1FN>,
                                       tensor<16x4xf8E8M0FNU>, tensor<64x4xf8E8M0FNU>)
    outs(%zeros : tensor<16x64xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f4E2M1FN, %a_scale: f8E8M0FNU, %b_scale: f8E8M0FNU, %sum: f32):
    %0 = arith.scaling_extf %a, %a_scale : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %b_scale : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}
"""


@cache
def program() -> mxcomp.Program:
    """Reads its weights packed."""
    return mxcomp.compile(LAYER, packed_parameters=True)


@dataclass(frozen=True)
class Reader:
    """What is read: `make` writes a sound file, `read` has it read from a folder that has all of them."""

    make: Callable[[Path], None]
    read: Callable[[Path], int]
    damage: Callable[[bytes, int], bytes] = damaged


def tool(main: Callable[[list[str]], int], *arguments: str) -> Callable[[Path], int]:
    """A command; {} is the file."""
    return lambda path: main([each.format(path, folder=path.parent) for each in arguments])


def library(read: Callable[[Path], object]) -> Callable[[Path], int]:
    """A function: an error of ours is said as a command would say it."""

    def run(path: Path) -> int:
        try:
            read(path)
        except InputError as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    return run


def packing(path: Path) -> int:
    (path.parent / "manifest.json").write_text(program().report.manifest.to_json())
    return pack.main([str(path), f"--manifest={path.parent}/manifest.json", "-o", f"{path.parent}/packed.irpa"])


def weights() -> dict[str, np.ndarray]:
    return {"fc.weight": ELEMENTS.reshape(64, 64), "fc.weight_scale": SCALES, "unused": np.arange(500.0)}


def safetensors(path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(weights(), path)


def gguf_file(path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, "test")
    writer.add_array("words", ["one", "two", "three"])
    writer.add_tensor("x", np.arange(500.0))
    blocks = np.concatenate([SCALES[..., None], ELEMENTS], -1).reshape(len(SCALES), -1)
    writer.add_tensor("fc", blocks, raw_dtype=GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def all_tensors(path: Path) -> int:
    return sum(tensor.data.size for tensor in Checkpoint.read(path).values())


def manifest(path: Path) -> int:
    """With sound weights."""
    np.savez(path.parent / "w.npz", **weights())
    return pack.main([f"{path.parent}/w.npz", f"--manifest={path}", "-o", f"{path.parent}/packed.irpa"])


def code(path: Path) -> None:
    path.write_bytes((SIM / "kernels" / "faults.hsaco").read_bytes())


def scales(path: Path) -> None:
    np.save(path, SCALES)
    np.save(path.with_name("a.npy"), ELEMENTS)


def argument(path: Path) -> None:
    np.save(path, ELEMENTS[:8])
    code(path.with_name("k.hsaco"))


PROBLEM = Problem(16, 256, 512, ("f4E2M1FN", "f8E4M3FN", "f8E8M0FNU", "f8E8M0FNU", "f32"))
LINE = Line(Key("gfx950", PROBLEM, "bf16"), "mx_some", tuned_lines.MODELLED, 3.5, 0.04, True)
RUN = ("{}", "--run=fine_copy", "--block=128", "--arg=zeros:512", "--arg=empty:512", "--engine=numpy")

READERS = {
    "w.npz": Reader(lambda path: np.savez(path, **weights()), packing),
    "compressed.npz": Reader(lambda path: np.savez_compressed(path, **weights()), packing),
    "w.safetensors": Reader(safetensors, packing),
    "w.gguf": Reader(gguf_file, library(all_tensors)),
    "w.irpa": Reader(lambda path: save(path, {k: v.view(np.uint8) for k, v in weights().items()}), packing),
    "manifest.json": Reader(lambda path: path.write_text(program().report.manifest.to_json()), manifest),
    "a.npy": Reader(lambda path: np.save(path, ELEMENTS), tool(show.main, "{}", "--type=f4E2M1FN")),
    "scales.npy": Reader(
        scales,
        tool(show.main, "{folder}/a.npy", "--type=f4E2M1FN", "--scales={}"),
    ),
    "argument.npy": Reader(
        argument,
        tool(sim.main, "{folder}/k.hsaco", *RUN[1:3], "--arg=@{}", *RUN[4:]),
    ),
    "list.hsaco": Reader(code, tool(sim.main, "{}", "--kernel=fine_copy"), mutated),
    "run.hsaco": Reader(code, tool(sim.main, *RUN), mutated),
    "timing.hsaco": Reader(code, tool(sim.main, *RUN[:-1], "--timing"), mutated),
    "report.json": Reader(
        lambda path: path.write_text(program().report.to_json()),
        library(lambda path: Report.from_json(path.read_bytes(), str(path))),
    ),
    "dumped.json": Reader(lambda path: path.write_text(program().report.to_json()), library(reports.read)),
    "tuned.csv": Reader(lambda path: path.write_text(tuned_lines.text([LINE] * 20)), library(tuned_lines.read)),
}


def outcome(reader: Reader, path: Path) -> str:
    """What came of a file; raises whatever is no error of ours."""
    said, printed = io.StringIO(), io.StringIO()
    with redirect_stderr(said), redirect_stdout(printed):
        exit_code = reader.read(path)
    lines = said.getvalue().splitlines()
    assert exit_code in (0, 1) and len(lines) <= 1 + (exit_code == 0), lines
    return "read" if exit_code == 0 else "refused"


def read_all(name: str, seeds: range, folder: Path) -> Counter[str]:
    """All of them within seconds each, of this process's time."""
    reader, path, found = READERS[name], folder / name, Counter[str]()
    reader.make(path)
    sound = path.read_bytes()
    assert outcome(reader, path) == "read"
    for seed in seeds:
        path.write_bytes(reader.damage(sound, seed))
        start = time.process_time()
        found[outcome(reader, path)] += 1
        assert time.process_time() - start < 10, seed
    return found


@pytest.mark.parametrize("name", READERS)
def test_some(name: str, tmp_path: Path) -> None:
    assert read_all(name, range(15), tmp_path)["refused"]


@pytest.mark.parametrize("count", [2**31, 2**61, 2**63])
def test_a_count_beyond_the_end(count: int, tmp_path: Path) -> None:
    """Of an array in a GGUF file, which the package gguf would count through, element by element."""
    path = tmp_path / "w.gguf"
    gguf_file(path)
    sound = path.read_bytes()
    at = sound.index(b"words") + 5 + 4 + 4  # behind the key, its type, and that of the elements
    assert sound[at : at + 8] == (3).to_bytes(8, "little")
    path.write_bytes(sound[:at] + count.to_bytes(8, "little") + sound[at + 8 :])
    with pytest.raises(InputError, match=r"w\.gguf: "):
        Checkpoint.read(path)
    at = sound.index(b"fc") + 2 + 4 + 8  # behind the name, the number of dimensions, and K
    path.write_bytes(sound[:at] + bytes(8) + sound[at + 8 :])
    assert [Checkpoint.read(path)[name].data.size for name in ("fc", "fc_scale")] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_all(name: str, tmp_path: Path) -> None:
    assert read_all(name, range(300), tmp_path)["refused"]
