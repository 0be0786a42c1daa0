"""Linear layers with MX weights, and their insertion into models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch

from mxcomp.errors import InputError
from mxcomp.formats import element_format
from mxcomp.ir.quantisation import UNQUANTISED
from mxcomp.torch import experts, floats, torchao
from mxcomp.torch.floats import NOT_CALLED
from mxcomp.torch.operators import scaled_linear
from mxcomp.torch.values import Values, dequantised, quantised


class ScaledLinear(torch.nn.Module):
    """A linear layer with MX weights.

    Its buffers, by the names of published checkpoints, are `weight`, bytes as `scaled_linear` takes them,
    `weight_scale`, and `bias` or None. Models that ask for the attribute `weight` get numbers (`Values`), of the type
    `dtype` that the layer had: they cast activations to it. The bytes are `elements`.
    """

    weight_scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(
        self,
        weight: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        weight_format: str = "E2M1",
        input_format: str = "E2M1",
        mode: str = "even",
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.formats = weight_format, input_format, mode
        self.dtype = dtype or (torch.get_default_dtype() if bias is None else bias.dtype)
        self._buffers["weight"] = weight  # register_buffer refuses a name that is an attribute
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)

    @property
    def elements(self) -> torch.Tensor:
        """The weights' packed codes, uint8 [N, K · bits / 8]."""
        found = self._buffers["weight"]
        assert found is not None
        return found

    @property
    def weight(self) -> torch.Tensor:
        """The weights as numbers, [N, K]."""
        make = dequantised if torch.compiler.is_compiling() else Values  # tracers cannot look into `Values`
        return make(self.elements, self.weight_scale, self.formats[0], self.dtype)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight" and value.dtype != torch.uint8:
            raise InputError(
                f"weights of {value.dtype} cannot take the place of MX weights: is this layer to be tied with another? "
                "A filter= of replace_linears leaves it as it is"
            )
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> ScaledLinear:
        self.dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        return super()._apply(fn, recurse)

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, weight_format: str = "E2M1", input_format: str = "E2M1", mode: str = "even"
    ) -> ScaledLinear:
        """Quantises the weights of a layer; on the device meta, their shapes. Raises ValueError unless its inputs are a
        multiple of 32.
        """
        packed, scales = quantised(linear.weight, weight_format, mode)
        return cls(packed, scales, _bias(linear), weight_format, input_format, mode, linear.weight.dtype)

    @classmethod
    def from_torchao(cls, linear: torch.nn.Linear) -> ScaledLinear:
        """Returns a layer that torchao quantised, its weights unchanged. Raises ValueError for unsupported ones."""
        weight, scale, weight_format, input_format, mode = torchao.taken_apart(linear.weight)
        return cls(weight, scale, _bias(linear), weight_format, input_format, mode, linear.weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [..., N] from [..., K]."""
        rows = x.reshape(-1, x.shape[-1])
        y = scaled_linear(rows, self.elements, self.weight_scale, *self.formats).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        weight_format, input_format, mode = self.formats
        n, k = self.weight.shape
        return f"{k} → {n}, weight {element_format(weight_format)}, input {_name(input_format)}, mode {mode}"


def _bias(linear: torch.nn.Linear) -> torch.Tensor | None:
    return None if linear.bias is None else linear.bias.detach()


def _name(input_format: str) -> str:
    return input_format if input_format == UNQUANTISED else str(element_format(input_format))


_HOOKS = {key for key in vars(torch.nn.Module()) if key.startswith("_forward_") and "hooks" in key}
"""Attributes of modules with hooks that are called before or after their forward."""

Filter = Callable[[str, torch.nn.Linear], bool]
"""Returns whether a layer, by its name in the model, is replaced."""


def replace_linears(
    model: torch.nn.Module,
    weight_format: str = "E2M1",
    input_format: str = "E2M1",
    mode: str = "even",
    filter: Filter | None = None,
    *,
    on_meta: bool = False,
) -> torch.nn.Module:
    """Replaces `torch.nn.Linear`s of a model by `ScaledLinear`s, in place: all that it should, or none.

    Args:
        model: What torchao has quantised to MX in it keeps its weights and its way of quantising activations.
        weight_format, input_format, mode: See `scaled_linear`; `mode` is for weights too.
        filter: Called with the name of a layer, such as "model.layers.0.mlp.up_proj", and the layer: whether to replace
            it. `lambda name, _: name != "lm_head"` keeps the last layer as it is.
        on_meta: Layers on the device meta get MX weights there, without numbers: for models that are only timed.

    Returns:
        The model; a `ScaledLinear` for a model that is a linear layer itself. `left_in_floats` says of it what has
        not been replaced, and why.

    Raises InputError with the name of the layer for one that cannot be quantised; the model is then as before.
    """

    def made(linear: torch.nn.Linear) -> ScaledLinear:
        if torchao.is_mx(linear.weight):
            return ScaledLinear.from_torchao(linear)
        if linear.weight.is_meta and not on_meta:
            raise ValueError("its weights have no data (they are on the device meta)")
        return ScaledLinear.from_linear(linear, weight_format, input_format, mode)

    wanted = {
        name: filter is None or filter(name, layer)
        for name, layer in model.named_modules(remove_duplicate=False)
        if _is_plain(layer)
    }
    replaced = _made(model, made, lambda name, _: wanted[name])
    for name in [name for name, chosen in wanted.items() if not chosen]:
        floats.note(model.get_submodule(name), "the filter left it")
    floats.note_ties(model, replaced)
    return put(model, _experts(model, weight_format, input_format, mode) | replaced)


def _is_plain(layer: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    """Returns whether a layer is called and computes a linear layer. Routers of Llama 4 are subclasses that also
    choose."""
    is_linear = isinstance(layer, torch.nn.Linear) and not isinstance(layer, NOT_CALLED)
    return is_linear and type(layer).forward is torch.nn.Linear.forward


def _experts(model: torch.nn.Module, *formats: str) -> dict[str, torch.nn.Module]:
    """Returns the replacements of experts by name, with a warning where they stay as they are."""
    found: dict[str, torch.nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        try:
            made = experts.replacement(module, *formats)
        except ValueError as error:
            warnings.warn(f"experts '{name}' keep float weights: {error}", RuntimeWarning, stacklevel=3)
        else:
            found |= {} if made is None else {name: made}
    return found


def torchao_linears(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Returns the replacements of the linear layers that torchao quantised, by name. Raises InputError."""
    return _made(model, ScaledLinear.from_torchao, lambda _, linear: torchao.is_mx(linear.weight))


def _made(
    model: torch.nn.Module, make: Callable[[torch.nn.Linear], torch.nn.Module], wanted: Filter
) -> dict[str, torch.nn.Module]:
    """Returns a module for each wanted linear layer, by all its names; one for a layer with several names."""
    made: dict[torch.nn.Module, torch.nn.Module] = {}
    found = {}
    for name, layer in model.named_modules(remove_duplicate=False):
        if not _is_plain(layer) or not wanted(name, layer):
            continue
        try:
            found[name] = made[layer] = made.get(layer) or make(layer)
        except (ValueError, TypeError, RuntimeError) as error:  # torch's own, of a weight without data
            n, k = layer.weight.shape
            raise InputError(
                f"layer '{name}' ({k} → {n}) cannot have MX weights: {error}; a filter= can leave it as it is"
            ) from None
    return found


def put(model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> torch.nn.Module:
    """Replaces modules of a model, and returns it; the module itself for the name "".

    What is called before or after the modules that were there is called around the new ones.
    """
    for name, module in modules.items():
        hooks = {key: found for key, found in vars(model.get_submodule(name)).items() if key in _HOOKS}
        vars(module).update(hooks)  # the same dictionaries, so that handles still remove them
        parent, _, last = name.rpartition(".")
        if name:
            setattr(model.get_submodule(parent), last, module)
    return modules.get("", model)
