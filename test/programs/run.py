"""Runs programs drawn at random on the simulated GPU, and compares them with NumPy.

python test/programs/run.py --seed 7                                          # one, and what it is made of
python test/programs/run.py --first 0 --count 1000 --jobs 2 --log log.jsonl   # many; continues where a log ends
python test/programs/run.py --seed 7 --dump DIR                               # its MLIR, inputs and outputs
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import campaign
import numpy as np
import program
from checking import check
from nodes import BITS, FLOATS, Node, packed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--theme", default="", help="with --seed: of this theme")
    parser.add_argument("--way", default="", help="with --seed: plain, parameters, packed or plugin")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", type=Path, help="append a line of JSON for each program; skip those in it")
    parser.add_argument("--dump", type=Path, help="write the program of --seed, or each that fails, to a directory")
    options = parser.parse_args()
    return _one(options) if options.seed is not None else _many(options)


def _one(options: argparse.Namespace) -> int:
    drawn = program.draw(options.seed, options.theme, options.way)
    print(", ".join(sorted(drawn.features)))
    if options.dump:
        print(dump(drawn, options.dump))
    found = check(drawn)
    print(f"{found.kind} in {found.seconds:.1f} s {found.message}".rstrip())
    if found.kind != "right" and not options.dump:
        print(dump(drawn, Path("/tmp/mxcomp-programs")))
    return int(found.kind != "right")


def _many(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.count)
    records = [record for record in campaign.read(options.log) if record.seed in seeds] if options.log else []
    for record in campaign.run(seeds, options.jobs, options.log):
        records.append(record)
        bad = sum(record.kind != "right" for record in records)
        print(f"\r{len(records)} of {len(seeds)}, {bad} not right", end="", flush=True)
        if record.kind != "right":
            print(f"\n{record.seed} {record.kind}: {record.message[:300]}", flush=True)
            if options.dump:
                print(dump(program.draw(record.seed), options.dump))
    print(f"\n{campaign.summary(records)}")
    return int(any(record.kind != "right" for record in records))


def dump(drawn: program.Program, directory: Path) -> str:
    """Writes a program, its inputs and outputs, and a command that runs it; returns the path of the program."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"seed{drawn.seed}"
    (directory / f"{stem}.mlir").write_text(drawn.text)
    flags = ["--data-tiling=off"] * (not drawn.data_tiling) + [f"--ukernels={drawn.ukernels}"] * (
        drawn.ukernels != "fastest"
    )
    lines = [" ".join(["mxcomp-compile", f"{stem}.mlir", "-o", f"{stem}.vmfb", *flags])]
    for key, array in drawn.parameters.items():
        np.save(directory / f"{stem}.{key}.npy", array)
    for function in drawn.functions:
        words = ["mxcomp-run", f"{stem}.vmfb", f"--function={function.name}"]
        results = [_array(node) for node in function.results]
        for flag, short, arrays in (("input", "in", function.inputs), ("expected_output", "out", results)):
            for i, array in enumerate(arrays):
                words.append(f"--{flag}={_written(directory, f'{stem}.{function.name}.{short}{i}', array)}")
        lines.append(" ".join([*words, *_tolerances(function.results)]))
    (directory / f"{stem}.sh").write_text(" && ".join(lines) + "\n")
    return str(directory / f"{stem}.mlir")


def _written(directory: Path, name: str, array: np.ndarray) -> str:
    """Writes an array to a file; what iree-run-module calls it. A .npy file has no bf16."""
    if array.dtype != FLOATS["bf16"]:
        np.save(directory / f"{name}.npy", np.ascontiguousarray(array))  # IREE reads no other order
        return f"@{name}.npy"
    (directory / f"{name}.bin").write_bytes(array.tobytes())
    return f"{'x'.join(map(str, array.shape))}xbf16=@{name}.bin"


def _tolerances(results: Iterable[Node]) -> list[str]:
    """How far results of each type may be off."""
    errors: dict[str, float] = {}
    for node in results:
        if node.kind in FLOATS and node.error is not None:
            errors[node.kind] = max(errors.get(node.kind, 0.0), float(np.nanmax(node.error, initial=0.0)))
    return [f"--expected_{kind}_threshold={error:.2e}" for kind, error in errors.items()]


def _array(node: Node) -> np.ndarray:
    """An expected result as it is returned."""
    if node.kind in FLOATS:
        with np.errstate(over="ignore"):
            return node.data.astype(FLOATS[node.kind])
    return packed(node.data, BITS[node.kind]).reshape(*node.shape[:-1], -1).view(np.int8)


if __name__ == "__main__":
    raise SystemExit(main())
