"""Times of the dispatches of one scaled matmul: modelled without a GPU, measured with one."""
