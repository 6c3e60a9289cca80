"""The extraction job: prepared token ids in, hidden states of a patched SGLang server out, every sample checked and stored once.

Runs on the GPU box in the Python that has SGLang (httpx, torch, safetensors, numpy, pyarrow). What is read and journalled needs the
standard library alone, so that it can be tested anywhere.
"""
