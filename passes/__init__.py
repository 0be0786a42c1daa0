"""The passes, by the name they have in a pipeline. Each is one file with a `run(module, options)`.

A pass that can be told something says what in `OPTIONS`: names as in `mxcomp-encode{ukernels=none data-tiling=on}`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from iree.compiler import ir

from mxcomp.options import Options

PASSES = {
    "mxcomp-import-torch": "import_torch",
    "mxcomp-take-bytes": "take_bytes",
    "mxcomp-declare-types": "declare_types",
    "mxcomp-inline-calls": "inline_calls",
    "mxcomp-expand-reshapes": "expand_reshapes",
    "mxcomp-group-experts": "group_experts",
    "mxcomp-legalise": "legalise",
    "mxcomp-recognise": "recognise",
    "mxcomp-check-sizes": "check_sizes",
    "mxcomp-hold-constants": "hold_constants",
    "mxcomp-encode": "encode",
    "mxcomp-fall-back": "fall_back",
    "mxcomp-widen-codes": "widen_codes",
    "mxcomp-fuse-consumers": "fuse_consumers",
    "mxcomp-materialise": "materialise",
    "mxcomp-legalise-reductions": "legalise_reductions",
    "mxcomp-legalise-zeros": "legalise_zeros",
    "mxcomp-split-subscripts": "split_subscripts",
    "mxcomp-legalise-few-rows": "legalise_few_rows",
    "mxcomp-legalise-scans": "legalise_scans",
    "mxcomp-scale-scores": "scale_scores",
    "mxcomp-legalise-topk": "legalise_topk",
    "mxcomp-legalise-lookups": "legalise_lookups",
    "mxcomp-legalise-overwriting": "legalise_overwriting",
    "mxcomp-legalise-producers": "legalise_producers",
    "mxcomp-sort-slots": "sort_slots",
    "mxcomp-outline": "outline",
    "mxcomp-skip-versions": "skip_versions",
    "mxcomp-share-executables": "share_executables",
    "mxcomp-share-slices": "share_slices",
    "mxcomp-renumber-workloads": "renumber_workloads",
    "mxcomp-part-variables": "part_variables",
    "mxcomp-place-results": "place_results",
    "mxcomp-keep-operands": "keep_operands",
    "mxcomp-link-ukernels": "link_ukernels",
    "mxcomp-unmask-stores": "unmask_stores",
    "mxcomp-fold-gathers": "fold_gathers",
    "mxcomp-fold-rows": "fold_rows",
    "mxcomp-order-workgroups": "order_workgroups",
    "mxcomp-narrow-attention": "narrow_attention",
}
"""Pass names and the files they live in; imported when first used."""


@dataclass(frozen=True)
class Pass:
    """A pass: `run` changes a module in place and raises MxcompError, `options` are the names it can be told."""

    run: Callable[[ir.Operation, Options], None]
    options: tuple[str, ...]


def get_pass(name: str) -> Pass:
    """A pass by its name in pipelines. Raises KeyError."""
    module = import_module(f"{__name__}.{PASSES[name]}")
    return Pass(module.run, getattr(module, "OPTIONS", ()))
