"""The fast engine: kernels compiled with LLVM, from the same semantics tables the NumPy engine interprets.

`tracing` and `ufuncs` turn a lane function into vector code, `exact` a scalar function into wide integers; `vector`,
`scalar`, `matrix` and the `memory_*` modules emit instructions, `kernel` puts them together, `jit` compiles,
`object_cache` keeps the result, `engine` runs waves. Whatever compiled code does not do itself, one instruction at a
time, it leaves to the NumPy engine."""

from mxcomp.sim.fast.engine import FastEngine

__all__ = ["FastEngine"]
