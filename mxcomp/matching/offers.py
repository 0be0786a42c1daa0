"""Offers a kernel of attention that also quantises and packs its result; it is written only where it is taken."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from iree.compiler import ir

from mxcomp.mlir import attributes
from mxcomp.mlir.attributes import PACKS
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_prefill import Prefill

_KINDS: Mapping[str, type[Decode | Prefill]] = {kind.__name__: kind for kind in (Decode, Prefill)}


def offer(op: ir.Operation, kernel: Decode | Prefill) -> None:
    """Offers a kernel in the place of that of a placeholder."""
    fields = msgspec.json.encode(kernel).decode()
    op.attributes[PACKS] = attributes.from_python({"kind": type(kernel).__name__, "fields": fields})


def offered(op: ir.Operation) -> Decode | Prefill:
    """Returns the kernel that is offered."""
    entries = attributes.to_python(op.attributes[PACKS])
    return msgspec.json.decode(entries["fields"], type=_KINDS[entries["kind"]])
