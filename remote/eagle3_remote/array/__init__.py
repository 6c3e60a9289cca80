"""An extraction as a Slurm job array: submitting it, being one of its tasks, and reading how far all of them are."""
