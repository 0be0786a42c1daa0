"""Operations of the linalg dialect.

It avoids `iree.compiler.dialects.linalg`, whose generated named operations take a fifth of a tool's start.
"""

from iree.compiler._mlir_libs._mlirDialectsLinalg import fill_builtin_region, get_indexing_maps
from iree.compiler.dialects._linalg_ops_gen import FillOp, GenericOp, IndexOp, TransposeOp, YieldOp

__all__ = ["FillOp", "GenericOp", "IndexOp", "TransposeOp", "YieldOp", "fill_builtin_region", "get_indexing_maps"]
