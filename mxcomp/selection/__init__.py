"""Chooses the layout and the ukernel of a scaled matmul."""
