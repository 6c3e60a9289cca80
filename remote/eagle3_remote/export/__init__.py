"""A dataset rewritten as another trainer reads it, sample by sample, and the vocabulary mapping of a drafter.

Runs on the GPU box in the Python that has SGLang (torch, safetensors, numpy, pyarrow). The source is only read.
"""
