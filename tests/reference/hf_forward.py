"""Hold every row of dumps against Hugging Face transformers in float32. Runs in an SGLang environment, as one process for
all that is asked of it.

Reads one JSON object a line: {"model": folder, "samples": {rid: [token id, ...]}, "dump_dir": folder, "final": "pre"|"post"}
and answers each with one: {"errors": {rid: [largest relative L2 error of any row, for each state in the file]}}, or
{"wrong": why}. It knows the dump from its files alone (safetensors and JSON) and shares no code with what it judges.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def states_of(model, ids):
    """All boundaries 0..N before the final norm, and what the norm makes of the last: ``[N + 2, tokens, hidden]``."""
    seen = []

    def note_input(layer, args, kwargs):
        seen.append((kwargs.get("hidden_states") if not args else args[0])[0])

    def note_norm(norm, args, output):
        seen.extend((args[0][0], output[0]))

    handles = [layer.register_forward_pre_hook(note_input, with_kwargs=True) for layer in model.model.layers]
    handles.append(model.model.norm.register_forward_hook(note_norm))
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return torch.stack([state.reshape(len(ids), -1) for state in seen])


def errors_of(model, samples, dump_dir, final):
    """The largest relative error a state, for each request."""
    worst = {}
    for rid, ids in samples.items():
        folder = Path(dump_dir) / f"req_{rid}"
        got = load_file(folder / "states.safetensors")
        meta = json.loads((folder / "meta.json").read_text())
        if got["token_ids"].tolist() != ids:
            raise ValueError(f"{rid}: token ids differ")
        want = states_of(model, ids)
        names = [*meta["boundaries"], -2 if final == "pre" else -1]
        states = got["hidden_states"].transpose(0, 1).double()
        if states.shape[0] != len(names) or states.shape[1] != len(ids):
            raise ValueError(f"{rid}: shape {tuple(states.shape)}")
        errors = []
        for index, name in enumerate(names):
            reference = want[name].double()
            relative = (states[index] - reference).norm(dim=-1) / reference.norm(dim=-1)
            errors.append(relative.max().item())
        worst[rid] = errors
    return worst


def main():
    """Answer until the input ends."""
    torch.set_num_threads(1)  # two threads wait for each other where a server keeps a core busy
    models = {}
    for line in sys.stdin:
        ask = json.loads(line)
        folder = ask.pop("model")
        try:
            if folder not in models:
                models[folder] = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            answer = {"errors": errors_of(models[folder], **ask)}
        except Exception as error:
            answer = {"wrong": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
