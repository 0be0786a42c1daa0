"""What commands share and the compiler does not need: files, tables, progress, worker processes, caches."""
