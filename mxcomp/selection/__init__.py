"""Which layout and which ukernel a scaled matmul is computed with."""
