"""What commands share and no compiler needs to know: files, tables, progress, worker processes, caches."""
