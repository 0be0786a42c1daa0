"""What became of the scaled matmuls of a module, and where a running kernel finds their operands."""

from __future__ import annotations

from mxcomp.report.report import Report, ScaledMatmul

__all__ = ["Report", "ScaledMatmul"]
