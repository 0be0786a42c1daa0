"""Loads published checkpoints into PyTorch models: tensors stay mapped from their files, and MX weights unchanged."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from mxcomp.errors import InputError
from mxcomp.torch import experts, floats, linear, tying
from mxcomp.torch.linear import ScaledLinear
from mxcomp.weights.checkpoint import Checkpoint, Tensor
from mxcomp.weights.views import Bytes

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""The types of plain tensors, by their names in safetensors files."""


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
    found = _renamed(found, model)
    state, tied = model.state_dict(keep_vars=True), tying.groups(model)
    loader = _Loader(found, input_format, mode, weight_format, _float_type(found, state), tied)
    modules = _scaled(model, loader)
    plain = {key: loader.plain(key, value) for key, value in state.items() if key in found and not _in(key, modules)}
    in_mx = {key for key in state if _in(key, modules)}
    parts = plain | {f"{name}.{key}": part for name, made in modules.items() for key, part in made.state_dict().items()}

    def equal(one: str, other: str) -> bool:
        # MX weights are equal if their scales are, too
        return all(_equal(parts.get(one + end), parts.get(other + end)) for end in ("", "_scale"))

    ties, own = tying.chosen(tied, plain, in_mx, equal, found.name)
    missing = [key for key in state if key not in plain and key not in in_mx and ties.get(key) not in plain]
    if missing:
        raise InputError(f"{found.name}: no tensor '{missing[0]}', which the model has{_others(missing)}")
    unused = sorted(set(found) - loader.used)
    if strict and unused:
        raise InputError(
            f"{found.name}: the model has no place for '{unused[0]}'{_others(unused)}: strict=False leaves them out"
        )
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name not in modules:
            floats.note(module, "the checkpoint has no MX weights for it")
    model = linear.put(model, modules)
    model.load_state_dict(plain, strict=False, assign=True)
    tying.tie(model, {key: source for key, source in ties.items() if key not in in_mx}, own)
    return model


def _scaled(model: torch.nn.Module, loader: _Loader) -> dict[str, torch.nn.Module]:
    """Returns the replacements of modules that the checkpoint has MX weights for, by all their names. Raises
    InputError.

    A module in several places is stored under one of their names, or the same under all of them.
    """
    places: dict[torch.nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        places.setdefault(module, []).append(name)
    modules: dict[str, torch.nn.Module] = {}
    for module, names in places.items():
        made = {name: scaled for name in names if (scaled := loader.scaled(name, module))}
        for name, other in made.items():
            first = next(iter(made.values()))
            if not all(_equal(value, other.state_dict()[key]) for key, value in first.state_dict().items()):
                raise InputError(
                    f"{loader.checkpoint.name}: '{next(iter(made))}' and '{name}' differ, in the model they are one"
                )
        modules |= dict.fromkeys(names if made else (), next(iter(made.values()), module))
    return modules


def _in(key: str, modules: Mapping[str, torch.nn.Module]) -> bool:
    """Returns whether a tensor belongs to one of the modules, or to a submodule."""
    parts = key.split(".")
    return any(".".join(parts[:count]) in modules for count in range(len(parts)))


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)


def _float_type(checkpoint: Checkpoint, state: Mapping[str, torch.Tensor]) -> torch.dtype | None:
    """Returns the type of most of the floats of a checkpoint for a model, or None if it has none or does not say it."""
    sizes: Counter[torch.dtype] = Counter()
    for key in state.keys() & checkpoint.keys():
        dtype = _DTYPES.get(checkpoint[key].dtype or "")
        if dtype is not None and dtype.is_floating_point:
            sizes[dtype] += checkpoint[key].data.nbytes
    return max(sizes, key=lambda dtype: sizes[dtype], default=None)


_EARLIER = {"block_sparse_moe": "mlp"}
"""Names of modules in checkpoints of Mixtral that transformers has renamed."""


def _renamed(found: Checkpoint, model: torch.nn.Module) -> Checkpoint:
    """Returns a checkpoint with the names of this version's model."""
    known = {part for name, _ in model.named_modules() for part in name.split(".")}
    new = {old: name for old, name in _EARLIER.items() if old not in known and name in known}
    names = {key: ".".join(new.get(part, part) for part in key.split(".")) for key in found}
    return Checkpoint({names[key]: tensor for key, tensor in found.items()}, found.name)


def _others(names: list[str]) -> str:
    return f", and {len(names) - 1} others" if len(names) > 1 else ""


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Returns the files of a checkpoint. Raises InputError for a folder without any."""
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
    """Loads modules and tensors from a checkpoint; `used` are the names of those that have been loaded."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        input_format: str,
        mode: str,
        weight_format: str | None,
        float_type: torch.dtype | None,
        tied: tying.Groups,
    ) -> None:
        self.checkpoint, self.used = checkpoint, set[str]()
        self._input_format, self._mode, self._weight_format = input_format, mode, weight_format
        self._float_type = float_type
        self._tied = {name: group for group in tied for name in group}

    def scaled(self, name: str, module: torch.nn.Module) -> torch.nn.Module | None:
        """Returns the replacement of a module, if the checkpoint has MX weights for it. Raises InputError."""
        if isinstance(module, torch.nn.Linear):
            stem = self._stored(f"{name}.weight").removesuffix(".weight")
            if not self.has_mx(stem):
                return None
            tensors, formats = self.mx(stem, tuple(module.weight.shape))
            bias = None if module.bias is None else self.plain(self._stored(f"{name}.bias"), module.bias)
            dtype = bias.dtype if bias is not None else self._float_type or module.weight.dtype
            return ScaledLinear(*tensors, bias, *formats, dtype=dtype)
        return experts.loaded(self, name, module)

    def _stored(self, key: str) -> str:
        """Returns the name of a tensor in the files: that of a tied one, if it is missing itself."""
        names = key, *self._tied.get(key, ())
        return next((n for n in names if n in self.checkpoint or self.has_mx(n.removesuffix(".weight"))), key)

    def has_mx(self, name: str) -> bool:
        """Returns whether there is an MX weight of a name."""
        return bool(self.checkpoint.mx_names(name))

    def mx(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[str, str, str]]:
        """Returns the elements and scales of weights [(experts,) N, K], and formats and mode for them."""
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

    def plain(self, key: str, expected: torch.Tensor) -> torch.Tensor:
        """Returns a tensor as it is stored. Raises InputError for one of another shape or an unknown type."""
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
    """Returns the same memory as a tensor, which must not be written to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is not writable
        return torch.from_numpy(np.ascontiguousarray(data))
