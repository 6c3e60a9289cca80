"""What the embedded box is made of: a real SGLang on this machine's CPU, a tiny model and data for it."""
