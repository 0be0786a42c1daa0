"""Runs compiled programs on this machine's CPU. Takes vmfb bytes; knows nothing of how they were made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from iree import runtime as rt

from mxcomp.errors import VerifyError


def run(vmfb: bytes, function: str, inputs: Sequence[np.ndarray], driver: str = "local-sync") -> list[np.ndarray]:
    """Calls `function` of a module and returns its results. Raises VerifyError with the runtime's message."""
    config = rt.Config(driver)
    module = rt.load_vm_module(rt.VmModule.copy_buffer(config.vm_instance, vmfb), config)
    try:
        results = module[function](*(np.ascontiguousarray(array) for array in inputs))
    except (RuntimeError, ValueError) as error:
        raise VerifyError(f"@{function} failed: {error}") from None
    results = results if isinstance(results, tuple | list) else (results,)
    return [np.asarray(result) for result in results]
