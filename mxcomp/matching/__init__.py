"""What is in a module: scaled matmuls, their operands, where these are stored, and what computes them."""
