"""What extractions left on this box's disks, and giving the space back. Standard library alone."""
