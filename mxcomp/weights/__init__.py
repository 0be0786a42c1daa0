"""Parameters in packed layouts: the manifest of a program, checkpoints, and views of operands in stored tensors."""
