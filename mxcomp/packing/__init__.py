"""The packed operands and tiles of scaled matmuls as IR."""
