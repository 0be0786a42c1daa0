"""Models whose weights are parameters, and checkpoints for them in the published formats."""

from __future__ import annotations

import json
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from modules import Bytes, Matmul, source

import mxcomp
from mxcomp.compiler import Program
from mxcomp.weights.checkpoint import Checkpoint, Tensor

SCOPE = "model"
KEYS = ["fc.weight", "fc.weight_scale"]
SMALL = Matmul(40, 100, 544, constant_rhs=True)


@cache
def built(matmul: Matmul, packed: bool = True) -> Program:
    """A matmul whose RHS is the parameters `KEYS`, compiled once."""
    return mxcomp.compile(with_parameters(matmul, keys=KEYS), packed_parameters=packed)


def tensors(matmul: Matmul) -> dict[str, Bytes]:
    """The parameters of `built(matmul)`."""
    _, elements, _, scales = matmul.operands
    return dict(zip(KEYS, (elements, scales), strict=True))


def stored(arrays: dict[str, Bytes]) -> Checkpoint:
    return Checkpoint({key: Tensor(array) for key, array in arrays.items()})


def with_parameters(*matmuls: Matmul, keys: list[str], extra: str = "", scope: str = SCOPE) -> str:
    """`source` of matmuls with a constant RHS, elements and scales of each loaded from the parameters `keys`."""
    text = source(*matmuls, extra=extra)
    values = re.findall(r"arith\.constant (dense<\"[^\"]*\"> : (\S+))", text)
    named = f'"{scope}"::' if scope else ""
    globals_ = []
    for index, ((value, kind), key) in enumerate(zip(values, keys, strict=True)):
        text = text.replace(f"arith.constant {value}", f"util.global.load immutable @p{index} : {kind}", 1)
        globals_.append(f'util.global private @p{index} = #flow.parameter.named<{named}"{key}"> : {kind}\n')
    return "".join(globals_) + text


def safetensors(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> Path:
    """Writes a file by the format's description: header size, JSON header, data; `tensors` are types and arrays."""
    header: dict[str, dict[str, Any]] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def quark(path: Path, **layers: tuple[Bytes, Bytes]) -> Path:
    """A checkpoint as AMD Quark writes it: uint8 [N, K/2] and uint8 [N, K/32]."""
    tensors: dict[str, tuple[str, np.ndarray]] = {}
    for name, (elements, scales) in layers.items():
        tensors |= {f"{name}.weight": ("U8", elements), f"{name}.weight_scale": ("U8", scales)}
    return safetensors(path, tensors)


def gpt_oss(path: Path, **experts: tuple[Bytes, Bytes]) -> Path:
    """A checkpoint like GPT-OSS: uint8 [experts, N, K/32, 16] and uint8 [experts, N, K/32]."""
    tensors: dict[str, tuple[str, np.ndarray]] = {}
    for name, (elements, scales) in experts.items():
        blocks = elements.reshape(*scales.shape, 16)
        tensors |= {f"{name}_blocks": ("U8", blocks), f"{name}_scales": ("U8", scales)}
    return safetensors(path, tensors)
