"""Checks: each watches one kind of mistake that hardware only punishes sometimes."""
