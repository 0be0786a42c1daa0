"""Parts of tensors with a dynamic size that something looks elements up in, or sorts, as PyTorch's top-k makes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from spread import quick_if

import mxcomp.torch


class Parts(torch.nn.Module):
    """Ids of a top-k, by which it scatters and gathers, and which are sorted."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ids = x.topk(2, -1)[1]
        chosen = torch.zeros_like(x).scatter(1, ids, 1.0)
        added = x.scatter_add(1, ids, x[:, 3:5])
        return chosen, added, x.sigmoid().gather(1, ids), ids.sort(-1)[0]


@pytest.mark.parametrize("rows", quick_if(lambda rows: rows is not None, [None, 5]))
def test_parts(rows: int | None) -> None:
    """With a dynamic number of rows all but the first were wrong, without a word, and the sort was not compiled."""
    torch.manual_seed(3)
    model, x = Parts(), torch.randn(rows or 7, 6)
    dynamic = None if rows is None else ({0: torch.export.Dim("rows", max=64)},)
    program = mxcomp.torch.compile(model, (x,), dynamic_shapes=dynamic)
    for each in (x, *([] if rows is None else [torch.randn(3, 6)])):
        for found, expected in zip(program.run(each.numpy()), model(each), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)
