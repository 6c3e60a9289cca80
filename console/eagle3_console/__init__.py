"""The operations console: runs on the laptop, reaches the GPU box over SSH."""

__version__ = "0.1.0"
