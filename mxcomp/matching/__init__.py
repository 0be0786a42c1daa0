"""Analyses a module: finds scaled matmuls, their operands, where these are stored, and what computes them."""
