"""Builds packed operands and result tiles of scaled matmuls as IR."""
