"""What runs on the GPU box: the agent, the supervisor of detached jobs, and the extraction."""

__version__ = "0.1.0"
