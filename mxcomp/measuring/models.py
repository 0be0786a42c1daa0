"""Models of transformers by their configurations: modelled µs of each kind of layer and of the head, for one token.

Dispatches are modelled by replays of what was compiled, products of experts by what even routing is expected to give.
The lower bound of a token's time is listed with it: bytes that must move, at the modelled rate of HBM, and launches.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from iree.runtime import ParameterIndex

import mxcomp.compiler
from mxcomp import profiling
from mxcomp.errors import InputError
from mxcomp.formats import MX_BLOCK
from mxcomp.measuring import moe
from mxcomp.profiling import DispatchProfile, Profile
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.support import files
from mxcomp.support.lines import Fault
from mxcomp.weights.manifest import Manifest

if TYPE_CHECKING:
    from mxcomp.measuring.decoders import Piece

HBM_GIGABYTES = 288
"""The HBM capacity of one GPU in GB (AMD Instinct MI355X data sheet)."""

TOKEN = "token"
"""The name of the entry for a whole token: all pieces, each as often as a token passes through it."""

_SCOPE = "model"
_LAUNCHES = {"layer": 7, "head": 2}
"""The least number of dispatches of a piece: of a layer both norms, q, k and v, the cache, attention, its output, gate
and up, and down, some of which may be fused; of the head its norm and its product."""


class Setting(NamedTuple):
    """The number of sequences, the slots of each cache, and the types of activations and weights."""

    batch: int
    context: int
    types: tuple[str, str]


@dataclass(frozen=True)
class Entry:
    """The times of a piece of a model in a setting, or of a whole token.

    Attributes:
        count: How many such pieces a token goes through.
        us: Modelled, of one; `low` and `high` are the sums of what its dispatches lay between.
        floor_us: The least: bytes at the modelled HBM rate, and launches.
        tokens_per_second: Of one GPU; of a whole token only.
        matmuls, attention, elementwise, cache, other: µs by kind of work: MX products with their packing; attention,
            RoPE and masks; norms, activations and residuals; new rows of the cache; products in floats, and routing.
        weight_bytes, cache_bytes, activation_bytes: That must move.
        stored_bytes: Of weights and cache, moved or not.
        unmodelled: Dispatches that the timing model cannot follow, which count as 0.
        guessed: Those whose times depend on data that was not computed.
    """

    model: str
    batch: int
    context: int
    activations: str
    weights: str
    piece: str
    count: int
    us: float
    low: float
    high: float
    floor_us: float
    tokens_per_second: float
    matmuls: float
    attention: float
    elementwise: float
    cache: float
    other: float
    weight_bytes: float
    cache_bytes: float
    activation_bytes: float
    stored_bytes: float
    dispatches: int
    unmodelled: int
    guessed: int

    @property
    def setting(self) -> Setting:
        return Setting(self.batch, self.context, (self.activations, self.weights))


KINDS = ("matmuls", "attention", "elementwise", "cache", "other")
_SUMMED = ("us", "low", "high", "floor_us", *KINDS, "weight_bytes", "cache_bytes", "activation_bytes", "stored_bytes",
           "dispatches", "unmodelled", "guessed")  # fmt: skip


@cache
def published() -> dict[str, dict[str, Any]]:
    """Returns the published configurations, by our names for them."""
    found: dict[str, dict[str, Any]] = json.loads((resources.files(__package__) / "published.json").read_text())
    return found


def configuration(name: str) -> dict[str, Any]:
    """Returns a configuration by a name, a folder with a config.json, or such a file. Raises InputError."""
    if name in published():
        return published()[name]
    path = Path(name)
    if not path.exists() and path.suffix != ".json":
        raise InputError(
            f"--model={name}: expected {', '.join(published())}, a folder with config.json, or such a file"
        )
    path = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(files.read(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: expected an object, as in a config.json of transformers")
    return dict(found)


def check(setting: Setting) -> None:
    """Raises InputError for an invalid setting."""
    for name, size in (("batch", setting.batch), ("context", setting.context)):
        if size < 1:
            raise InputError(f"--{name}: {size}: expected 1 or more")
    if setting.context == 1:
        raise InputError("--context: 1: expected 2 or more: a token and those before it")


def modelled(name: str, setting: Setting, known: dict[Any, Profile]) -> Iterator[Entry]:
    """Yields the entry of each kind of layer and of the head, and then of a whole token. `known` caches profiles of
    pieces that do not change with the context, such as the head. Raises what compiling and calling raise.
    """
    from mxcomp.measuring import decoders

    config = decoders.configuration(configuration(name), name)
    found = []
    for piece in decoders.pieces(config, setting.context, name, setting.types):
        key = name, piece.name, piece.caches, setting.batch, setting.types
        known[key] = known.get(key) or _profile(piece, setting)
        found.append(_entry(name, setting, piece, known[key]))
        yield found[-1]
    yield whole(found)


def whole(entries: list[Entry]) -> Entry:
    """Returns the entry of a token from those of its pieces."""
    first, *_ = entries
    sums = {field: sum(each.count * getattr(each, field) for each in entries) for field in _SUMMED}
    speed = 1e6 * first.batch / sums["us"]
    return Entry(first.model, *first.setting[:2], *first.setting.types, TOKEN, 1, tokens_per_second=speed, **sums)


def _profile(piece: Piece, setting: Setting) -> Profile:
    """Returns the profile of a call for the last slot of the cache. Nothing is computed, and weights are zeros that are
    in no file."""
    from mxcomp.measuring import decoders
    from mxcomp.torch.exporting import module_of
    from mxcomp.torch.parameters import Parameters
    from mxcomp.torch.values import array

    arguments = piece.arguments(setting.batch, setting.context - 1)
    with decoders.explained(f"{piece.name} cannot be exported"):
        module = module_of(piece.module, arguments, None, None, "main", Parameters(_SCOPE))
    program = mxcomp.compiler.compile(module, packed_parameters=True)
    index, manifest = ParameterIndex(), program.report.manifest
    assert isinstance(manifest, Manifest)
    for each in manifest.parameters:
        index.add_splat(each.key, np.int8(0), math.prod(each.type.byte_shape))
    with tempfile.TemporaryDirectory() as folder:
        archive, path = Path(folder) / "zeros.irpa", Path(folder) / "profile.jsonl"
        index.create_archive_file(str(archive))
        given = map(array, arguments)
        program.run(*given, parameters={_SCOPE: archive}, device="sim", engine="timing", profile=path)
        return profiling.read(path, program.report.launches, "main")


def _entry(name: str, setting: Setting, piece: Piece, profile: Profile) -> Entry:
    stored, weights = piece.weight_bytes(setting.batch)
    kept, written = (setting.batch * size for size in piece.cache_bytes)
    given, made = (setting.batch * size for size in piece.activation_bytes)
    p = mi355x()
    floor = (weights + kept + given) / (p.hbm_terabytes * 1e6) + (written + made) / (p.hbm_write_terabytes * 1e6)
    floor += _LAUNCHES["layer" if piece.caches else "head"] * p.launch_us
    called = profile.called
    experts = _experts(piece, setting, called)
    counted = called if experts is None else _before_experts(called)
    known = [each.modelled for each in counted if each.modelled is not None]
    shares: dict[str, Any] = dict.fromkeys(KINDS, 0.0)
    for each in counted:
        shares[work_of(each, piece.floats)] += each.us
    low, high = (sum(getattr(each, bound) for each in known) for bound in ("low", "high"))
    if experts is not None:
        more = _besides(experts, called) if setting.batch == 1 else 0.0
        shares["matmuls"] += experts.ours_us + more
        low, high = low + experts.low + more, high + experts.high + more
    return Entry(
        name, *setting[:2], *setting.types, piece.name, piece.count,
        us=sum(shares.values()), low=low, high=high, floor_us=floor, tokens_per_second=0.0, **shares,
        weight_bytes=weights, cache_bytes=kept + written, activation_bytes=given + made, stored_bytes=stored + kept,
        dispatches=len(called), unmodelled=len(counted) - len(known),
        guessed=sum(bool(each.depends) for each in counted),
    )  # fmt: skip


def _experts(piece: Piece, setting: Setting, called: Sequence[DispatchProfile]) -> moe.Entry | None:
    """Returns both products of experts for the expected even routing, or None for a piece without experts.

    What a call's dispatches would take depends on which experts tokens choose, which nobody computes here.
    """
    if piece.experts is None:
        return None
    count, rows, blocks = piece.experts.gate_up_proj_scales.shape
    layer = moe.Layer(
        model="", activation="", tokens=setting.batch, model_dim=blocks * MX_BLOCK, inter_dim=rows // 2,
        experts=count, top_k=piece.top_k, a_type=setting.types[0], w_type=setting.types[1],
    )  # fmt: skip
    is_apart = any(each.part.startswith("quantise") and _is_of_experts(each) for each in called)
    ((_, found),) = moe.modelled([moe.Row(1, layer, quantises=setting.batch == 1 and not is_apart)])
    if isinstance(found, Fault):
        raise InputError(f"experts of {piece.name}: {found.message}")
    return found


def _besides(experts: moe.Entry, called: Sequence[DispatchProfile]) -> float:
    """Returns µs of what kernels of a single token's experts compute besides, such as routing: what their replays, of
    few or the same experts, take longer than their products."""
    replayed = [each.us for each in called if _is_of_experts(each) and each.part.startswith("matmul")]
    products = experts.ours_us_gemm1, experts.ours_us_gemm2
    return sum(max(0.0, us - of) for us, of in zip(replayed, products, strict=False))


def _before_experts(called: Sequence[DispatchProfile]) -> list[DispatchProfile]:
    """Returns the dispatches without experts' products, and those from there up to the sum over a token's experts."""
    products = False
    found = []
    for each in called:
        is_theirs = _is_of_experts(each)
        products |= is_theirs and each.part.startswith("matmul")
        if not (is_theirs and products):
            found.append(each)
    return found


def _is_of_experts(dispatch: DispatchProfile) -> bool:
    return any(_EXPERTS.search(module) for place in dispatch.places[:1] for module in place.modules)


_EXPERTS = re.compile(r"(^|\.)experts$")
_OURS = ("our matmuls", "our packing")
_WORK: tuple[tuple[str, str, str], ...] = (
    ("cache", "", r"(^|\.)cache$"),
    ("attention", r"attention", r"attn|rotary"),
    ("elementwise", "", r"norm|act_fn|layer$|shared_experts|mlp$"),
    ("other", "", r"experts|router|gate$|^$"),
)
"""The kinds of work other than our matmuls, by text in the name of a kernel or of a PyTorch module."""


def work_of(dispatch: DispatchProfile, floats: Collection[str] = ()) -> str:
    """Returns which of `KINDS` a dispatch is; `floats`: linear layers that have no MX weights."""
    if dispatch.kind in _OURS:
        return "matmuls"
    modules = [module for place in dispatch.places[:1] for module in place.modules]
    if any(module in floats for module in modules):
        return "other"
    for kind, kernel, module in _WORK:
        if (kernel and re.search(kernel, dispatch.kernel)) or any(re.search(module, each) for each in modules):
            return kind
    return "other"
