"""The machine: what it is (doctor), what it has (GPUs, gauges, shared memory), whose a process is, and how a release gets there."""
