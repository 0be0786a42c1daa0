"""Code of commands that the compiler does not need: files, tables, progress, worker processes, caches."""
