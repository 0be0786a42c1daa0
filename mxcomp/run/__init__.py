"""Runs compiled programs: runtime, devices, arguments, and explanations of IREE's statuses."""
