"""The NumPy engine's parts: one closure per instruction, by family."""
