"""Running programs that were compiled: runtime, devices, arguments, what IREE's statuses mean."""
