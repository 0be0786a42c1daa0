"""Reports how each scaled matmul of a module was compiled, and where a running kernel finds its operands."""

from __future__ import annotations

from mxcomp.profiling.reports import ScaledMatmul
from mxcomp.report.report import Report

__all__ = ["Report", "ScaledMatmul"]
