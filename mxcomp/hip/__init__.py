"""A HIP driver library whose GPUs are `mxcomp.sim`: IREE's own runtime runs programs on it, without the GPU.

`driver/` is the library, libamdhip64.so, in C. It starts `worker`, the process in which kernels are simulated, and
speaks `protocol` to it; device memory is shared by the two. `library` finds or builds the library and says which
environment variables it listens to; `build` compiles it.
"""
