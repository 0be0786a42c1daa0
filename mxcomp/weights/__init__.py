"""Parameters in packed layouts: the manifest of a program, checkpoints, and where an operand lies in a tensor."""
