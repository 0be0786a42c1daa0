"""The manifest of a program's parameters, and mxcomp-pack: what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import source
from parameters import KEYS, SMALL, built, tensors, with_parameters

import mxcomp
from mxcomp.errors import InputError
from mxcomp.tools import pack
from mxcomp.weights import checkpoint
from mxcomp.weights.archive import Later, Streamed
from mxcomp.weights.checkpoint import Checkpoint
from mxcomp.weights.manifest import Manifest

# The manifest.


def test_manifest() -> None:
    manifest = built(SMALL).report.manifest
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert json.loads(built(SMALL).report.to_json())["manifest"]["parameters"]
    elements, scales = (parameter.packing for parameter in manifest.parameters)
    assert (elements.source, elements.operand, elements.element) == (KEYS[0], "rhs", "f4E2M1FN")
    assert (scales.source, scales.operand, scales.element) == (KEYS[1], "rhs_scale", "f8E8M0FNU")
    for packing in (elements, scales):
        assert (packing.rows, packing.k) == (SMALL.n, SMALL.k)
        assert packing.layout == built(SMALL).report.matmuls[0].layout
    again = mxcomp.compile(with_parameters(SMALL, keys=KEYS), packed_parameters=True, compile_to="flow")
    assert again.report.manifest == manifest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m is not a manifest of parameters: Expecting value"),
        ('{"format":', "m is not a manifest of parameters: Expecting value"),
        ("[]", "m is not a manifest of parameters: mxcomp-compile --packed-parameters=m writes one"),
        ('{"matmuls": []}', "m is not a manifest of parameters: mxcomp-compile"),
        ('{"format": "mxcomp parameters", "version": 1}', "m has version 1, expected 2: compile the program again"),
        ('{"format": "mxcomp parameters", "version": 2}', "no list of parameters"),
        ('{"format": "mxcomp parameters", "version": 2, "parameters": [3]}', "parameter 0 is damaged"),
    ],
)
def test_no_manifest(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Manifest.from_json(text, "m")
    assert message in str(caught.value)


def places(entry: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in JSON data."""
    children = entry.items() if isinstance(entry, dict) else enumerate(entry) if isinstance(entry, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


@pytest.mark.parametrize("value", [None, "x", -1, 0, 3.5, [], {}, [None]], ids=repr)
def test_damaged_manifest(value: Any) -> None:
    """Anything else anywhere in it is an error, or means the same; scope and whether to pack are free choices."""
    manifest = built(SMALL).report.manifest
    text, packing = manifest.to_json(), manifest.parameters[0].packing
    refused = 0
    for path in places(json.loads(text)["parameters"][0]):
        if (path[-1:] == ("scope",) and isinstance(value, str)) or (path == ("packing",) and value is None):
            continue
        entries = json.loads(text)
        target, *rest = entries["parameters"], 0, *path
        for key in rest[:-1]:
            target = target[key]
        target[rest[-1]] = value
        if entries == json.loads(text):
            continue
        try:
            changed = Manifest.from_json(json.dumps(entries)).parameters[0]
        except InputError as error:
            refused += 1
            assert str(error).startswith("manifest: parameter 0 is damaged: ")
            assert str(error).endswith(": compile the program again with --packed-parameters")
        else:
            assert path[:2] == ("packing", "layout")
            assert changed.key == manifest.parameters[0].key
            assert changed.packing.pack(ELEMENTS).tobytes() == packing.pack(ELEMENTS).tobytes()
    assert refused > 30


def test_a_layout_of_another_version() -> None:
    text = built(SMALL).report.manifest.to_json()
    for change in ({"intrinsics_k": 3}, {"intrinsic": "MFMA_SCALE_F32_32x32x64_B32"}, {"subgroups_q": 2}):
        entries = json.loads(text)
        entries["parameters"][0]["packing"]["layout"] |= change
        with pytest.raises(InputError, match=r"parameter 0 is damaged: .*(to this version of mxcomp|subgroups_q)"):
            Manifest.from_json(json.dumps(entries))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": 4}, " is 'fc.weight.packed.rhs.16x"),
        ({"offset": 1}, "expected whole elements of 4 bits"),
        ({"offset": -4}, "Expected `int` >= 0 - at `$.packing.view.offset`"),
        ({"offset": True}, "Expected `int`, got `bool` - at `$.packing.view.offset`"),
        ({"offset": 8}, "tensor<100x272xi8>: it has 27200 bytes, the view 27201"),
        ({"rows": [[50, 2176]]}, "rows of 50, expected 100"),
        ({"rows": [[100, 2177]]}, "expected whole elements of 4 bits"),
        ({"rows": [[100, 4352]]}, "tensor<100x272xi8>: it has 27200 bytes, the view 54128"),
        ({"rows": [[100, -8]]}, "Expected `int` >= 0 - at `$.packing.view.rows[0][1]`"),
        ({"rows": [[100, 2176], [1, 4]]}, "Expected `int` >= 2 - at `$.packing.view.rows[1][0]`"),
        ({"rows": [100, 2176]}, "Expected `array`, got `int` - at `$.packing.view.rows[0]`"),
        ({"rows": [[100, 1088]]}, " is 'fc.weight.packed.rhs.16x"),
        ({"rows": [[2, 2176], [50, 0]]}, " is 'fc.weight.packed.rhs.16x"),
        ({"k": [[2176, 0]]}, "expected whole elements of 4 bits"),
        ({"k": [[1088, 2], [2, 1]]}, "expected whole elements of 4 bits"),
        ({"k": [[272, 8], [8, 1]]}, " is 'fc.weight.packed.rhs.16x"),
        ({"batch": [[2, 0]]}, "batch of 2, expected 1"),
    ],
    ids=str,
)
def test_a_damaged_view(change: dict[str, Any], message: str) -> None:
    entries = json.loads(built(SMALL).report.manifest.to_json())
    entries["parameters"][0]["packing"]["view"] |= change
    if "offset" in change and change["offset"] == 4:  # which is inside of a larger source
        entries["parameters"][0]["packing"]["type"]["shape"] = [101, 272]
    with pytest.raises(InputError, match="parameter 0 is damaged: ") as caught:
        Manifest.from_json(json.dumps(entries))
    assert message in str(caught.value)


def test_a_source_that_is_too_short() -> None:
    packing = built(SMALL).report.manifest.parameters[0].packing
    with pytest.raises(ValueError, match="27199 bytes, the view has 27200"):
        packing.pack(ELEMENTS.reshape(-1)[:-1])


def test_no_parameters(tmp_path: Path) -> None:
    program = mxcomp.compile(source(SMALL), packed_parameters=True, compile_to="flow")
    assert program.report.manifest == Manifest()
    with pytest.raises(InputError, match="the program reads no parameters"):
        checkpoint.pack(program.report.manifest, Checkpoint({}))


# mxcomp-pack.


def test_mxcomp_pack_without_manifest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert pack.main(["w.npz", "-o", str(tmp_path / "p.irpa")]) == 1
    assert "mxcomp-compile --packed-parameters=FILE writes it" in capsys.readouterr().err


ELEMENTS, SCALES = SMALL.operands[1], SMALL.operands[3]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "no tensor 'fc.weight', neither by this name nor by one that means the same"),
        ({"fc.weight": ELEMENTS}, "no tensor 'fc.weight_scale'"),
        ({"fc_blocks": ELEMENTS, "fc.weight_scale": SCALES}, "no tensor 'fc.weight'"),
        ({"fc.weight": ELEMENTS.T.copy()}, "has [272, 100] bytes, expected [100, 272]: is it transposed?"),
        (
            {"fc.weight": ELEMENTS[:, :-1]},
            "'fc.weight' cannot be read as tensor<100x272xi8>: it has 27100 bytes, expected 27200",
        ),
        ({"fc.weight": ELEMENTS.view(np.float16)}, "it has type F16, expected "),
        ({"fc.weight": ELEMENTS, "fc.weight_scale": SCALES.astype(np.float32)}, "it has type F32, expected "),
        ({"fc.weight": np.array([{}])}, "cannot read {input}: Object arrays cannot be loaded"),
    ],
)
def test_mxcomp_pack_refuses(
    weights: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    manifest, path, output = tmp_path / "m.json", tmp_path / "w.npz", tmp_path / "p.irpa"
    manifest.write_text(built(SMALL).report.manifest.to_json())
    np.savez(path, **weights, allow_pickle=True)
    output.write_bytes(b"old")
    assert pack.main([str(path), f"--manifest={manifest}", "-o", str(output)]) == 1
    assert message.format(input=path) in capsys.readouterr().err
    assert output.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [manifest, output, path]


@pytest.mark.parametrize("output", ["absent/p.irpa", "", "-"])
def test_mxcomp_pack_where_nothing_can_be_written(
    output: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    manifest, path = tmp_path / "m.json", tmp_path / "w.npz"
    manifest.write_text(built(SMALL).report.manifest.to_json())
    np.savez(path, **tensors(SMALL))
    target = output if output == "-" else str(tmp_path / output)
    assert pack.main([str(path), f"--manifest={manifest}", "-o", target]) == 1
    assert f"mxcomp-pack: error: cannot write {target.rstrip('/')}: " in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [manifest, path]


def test_a_full_disk_leaves_no_archive(tmp_path: Path) -> None:
    def disk_full() -> np.ndarray:
        assert not list(tmp_path.iterdir())  # what there is of it has no name yet
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write .*p\.irpa: No space left on device"):
        checkpoint.save(tmp_path / "p.irpa", Streamed({"w": Later(2**24, disk_full)}))
    assert not list(tmp_path.iterdir())
