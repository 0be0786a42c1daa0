"""Compiled gfx950 kernels to try the simulator on, and what they have to compute.

`triton` holds code objects made by Triton, `iree` compiles programs with IREE and with mxcomp when asked. `operands`
makes inputs and float64 results, `device` is the only module here that knows `mxcomp.sim`.
"""
