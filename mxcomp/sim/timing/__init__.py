"""Models how long kernels take on an MI355X, from what they execute; docs/timing.md has its accuracy.

    work = examination.examine(device, kernel, grid, kernarg)   # a workgroup's trace, and what others share with it
    print(estimates.estimate(work))                 # modelled 60.8 µs (55.9 to 65.6), bound by MFMA
    timeline.Timeline.of(work).json()               # for ui.perfetto.dev

Data flows from `trace` (what a workgroup executes) and `examination` (which workgroups load the same) by `workgroup`,
which replays traces on a compute unit, to `chip` and `estimates`, which put batches of workgroups on the chip.
"""
