"""The fast engine: kernels compiled with LLVM, from the same semantics tables the NumPy engine interprets.

`tracing` and `ufuncs` turn a lane function into vector code; `vector`, `scalar`, `matrix` and `memory` with its parts
emit instructions, `kernel` puts them together, `jit` compiles, `object_cache` keeps the result, `engine` runs waves.
Whatever compiled code does not do itself, one instruction at a time, it leaves to the NumPy engine."""

from mxcomp.sim.fast.engine import FastEngine

__all__ = ["FastEngine"]
