"""Published checkpoints in PyTorch models: tensors stay mapped from their files, and MX weights as they are in them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mxcomp.errors import InputError
from mxcomp.torch import linear
from mxcomp.torch.experts import ScaledExperts
from mxcomp.torch.linear import ScaledLinear
from mxcomp.weights.checkpoint import Checkpoint, Tensor
from mxcomp.weights.views import Bytes

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""Types of plain tensors, by their names in safetensors files."""

_EXPERTS = ("gate_up_proj", "down_proj")


def load(
    model: torch.nn.Module,
    checkpoint: Checkpoint | str | Path | Sequence[str | Path],
    input_format: str = "E2M1",
    mode: str = "even",
    weight_format: str | None = None,
    strict: bool = True,
) -> torch.nn.Module:
    """Gives a model the tensors of a checkpoint, in place: MX weights to its linear layers, and plain tensors.

    Args:
        model: On the device meta (`with torch.device("meta")`), if it is not to take memory for weights twice.
        checkpoint: Files, or a folder with .safetensors. MX weights are found by the names of AMD Quark, GPT-OSS
            (experts of transformers' `GptOssExperts` too) and compressed-tensors.
        input_format, mode: What activations are quantised to, see `scaled_linear`; checkpoints do not say it.
        weight_format: Of MX weights in files that do not say it: 6 and 8 bits in bytes.
        strict: A tensor of the checkpoint that the model has no place for is an error, as what it means is unknown.

    Returns:
        The model. Raises InputError for tensors that are missing, left over or do not fit: the model is as it was.
    """
    found = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint.read(*_files(checkpoint))
    loader = _Loader(found, input_format, mode, weight_format)
    modules = {name: made for name, module in model.named_modules() if (made := loader.scaled(name, module))}
    inside = tuple(f"{name}." for name in modules)
    plain = {
        key: loader.plain(key, value)
        for key, value in model.state_dict().items()
        if key in found and not key.startswith(inside)
    }
    tied = _tied(model)
    missing = [
        key
        for key, value in model.state_dict(keep_vars=True).items()
        if key not in plain and not key.startswith(inside) and key not in tied
    ]
    if missing:
        raise InputError(f"{found.name}: no tensor '{missing[0]}', which the model has{_others(missing)}")
    unused = sorted(set(found) - loader.used)
    if strict and unused:
        raise InputError(
            f"{found.name}: the model has no place for '{unused[0]}'{_others(unused)}: strict=False leaves them out"
        )
    model = linear.put(model, modules)
    model.load_state_dict(plain, strict=False, assign=True)
    if tied:
        model.tie_weights()
    return model


def _tied(model: Any) -> set[str]:
    """Names of tensors that a model of transformers shares with others, and no file has."""
    shares = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    return set(getattr(model, "_tied_weights_keys", None) or ()) if shares else set()


def _others(names: list[str]) -> str:
    return f", and {len(names) - 1} others" if len(names) > 1 else ""


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Files of a checkpoint. Raises InputError for a folder without any."""
    if not isinstance(paths, str | Path):
        return [Path(path) for path in paths]
    folder = Path(paths)
    if not folder.is_dir():
        return [folder]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise InputError(f"{folder} has no files ending in .safetensors")
    return found


class _Loader:
    """Modules and tensors from a checkpoint; `used` are the names of what has been taken from it."""

    def __init__(self, checkpoint: Checkpoint, input_format: str, mode: str, weight_format: str | None) -> None:
        self.checkpoint, self.used = checkpoint, set[str]()
        self._input_format, self._mode, self._weight_format = input_format, mode, weight_format

    def scaled(self, name: str, module: torch.nn.Module) -> torch.nn.Module | None:
        """What takes a module's place, if the checkpoint has MX weights for it. Raises InputError."""
        if isinstance(module, torch.nn.Linear) and self.checkpoint.mx_names(name):
            tensors, formats = self._mx(name, tuple(module.weight.shape))
            return ScaledLinear(*tensors, self._bias(name, module), *formats)
        stems = [f"{name}.{part}" for part in _EXPERTS]
        if all(self.checkpoint.mx_names(stem) for stem in stems):
            return self._experts(stems, module)
        return None

    def _experts(self, stems: list[str], module: Any) -> ScaledExperts:
        weights = [getattr(module, stem.rpartition(".")[2]) for stem in stems]  # [experts, K, N], other than published
        (gate_up, formats), (down, others) = (
            self._mx(stem, (len(weight), weight.shape[2], weight.shape[1]))
            for stem, weight in zip(stems, weights, strict=True)
        )
        if formats != others:
            raise InputError(f"{self.checkpoint.name}: '{stems[0]}' is {formats[0]}, '{stems[1]}' {others[0]}")
        biases = [self.plain(f"{stem}_bias", getattr(module, f"{stem.rpartition('.')[2]}_bias")) for stem in stems]
        return ScaledExperts(gate_up, biases[0], down, biases[1], module.alpha, module.limit, formats)

    def _mx(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[str, str, str]]:
        """Elements and scales of weights [(experts,) N, K], and formats and mode for them."""
        found = self.checkpoint.mx_weights(name)
        self.used |= set(self.checkpoint.mx_names(name))
        stored = (*found.scales.shape[:-1], found.scales.shape[-1] * 32)
        if stored != shape:
            raise InputError(f"{self.checkpoint.name}: '{name}' is {list(stored)}, the model's {list(shape)}")
        weight_format = found.format or self._weight_format
        if weight_format is None:
            what = f"{self.checkpoint.name}: '{name}': which elements are its bytes?"
            raise InputError(f"{what} Expected weight_format=, such as 'E4M3'")
        tensors = _mapped(found.elements), _mapped(found.scales)
        return tensors, (weight_format, self._input_format, self._mode)

    def _bias(self, name: str, module: torch.nn.Linear) -> torch.Tensor | None:
        return None if module.bias is None else self.plain(f"{name}.bias", module.bias)

    def plain(self, key: str, expected: torch.Tensor) -> torch.Tensor:
        """A tensor as it is stored. Raises InputError for one of another shape or an unknown type."""
        if key not in self.checkpoint:
            raise InputError(f"{self.checkpoint.name}: no tensor '{key}', which the model has")
        self.used.add(key)
        tensor = self.checkpoint[key]
        dtype = _dtype(tensor, expected)
        if dtype is None:
            raise InputError(f"{self.checkpoint.name}: '{key}' has type {tensor.dtype}: expected {', '.join(_DTYPES)}")
        shape = (*tensor.data.shape[:-1], tensor.data.shape[-1] // dtype.itemsize)
        flat = tensor.dtype is None or expected.dim() == 0  # archives of IREE do not know shapes
        fits = tensor.data.size == math.prod(expected.shape) * dtype.itemsize
        if not fits or (shape != tuple(expected.shape) and not flat):
            raise InputError(f"{self.checkpoint.name}: '{key}' is {list(shape)}, the model's {list(expected.shape)}")
        return _mapped(tensor.data.reshape(-1)).view(dtype).reshape(expected.shape)


def _dtype(tensor: Tensor, expected: torch.Tensor) -> torch.dtype | None:
    return expected.dtype if tensor.dtype is None else _DTYPES.get(tensor.dtype)


def _mapped(data: Bytes) -> torch.Tensor:
    """The same memory as a tensor, which nobody should write to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is not writable
        return torch.from_numpy(np.ascontiguousarray(data))
