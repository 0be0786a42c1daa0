"""A Llama of transformers with many layers and tiny sizes, as MLIR: what compile times of whole models are measured on.

Needs the extra "models".
"""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "06_generate.py"


def decode_step(layers: int) -> str:
    """The step that generates one token, with a cache of 32: seven linear layers to a layer, and one more."""
    import torch
    from transformers import LlamaConfig

    import mxcomp.torch

    example = runpy.run_path(str(EXAMPLE))
    make, _ = example["MODELS"]["llama"]
    example["MODELS"]["llama"] = (make, LlamaConfig(**{**example["TINY"], "num_hidden_layers": layers}))
    model = example["tiny"]("llama")
    arguments = torch.tensor([[5]]), torch.tensor([0])
    with torch.no_grad():
        program = torch.export.export(example["Decoder"](model, 32), arguments, strict=False)
    with tempfile.TemporaryDirectory() as folder:  # for weights, which compiling asks nothing of
        return str(mxcomp.torch.export(program, function="decode", parameters=Path(folder) / "model"))
