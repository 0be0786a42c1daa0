"""Times the dispatches of programs: modelled without a GPU, measured with one."""
