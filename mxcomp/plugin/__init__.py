"""Writes files that make a stock iree-compile compile a model's scaled matmuls as mxcomp does."""

from __future__ import annotations

from mxcomp.plugin.emit import emit_plugin

__all__ = ["emit_plugin"]
