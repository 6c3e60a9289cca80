"""No secret is written, and no number of the trade is taken for one."""

from __future__ import annotations

import pytest

from eagle3_console.recording import scrub
from eagle3_remote import protocol

SECRET = "Zq7rT_p4-x9Lk2"


SECRETS = [
    f"--api-key {SECRET}",
    f"--api-key={SECRET} --port 30000",
    f"HF_TOKEN={SECRET} python -m sglang",
    f"export HUGGING_FACE_HUB_TOKEN='{SECRET}'",
    f"server_args=ServerArgs(model='/m', api_key='{SECRET}', admin_api_key=\"{SECRET}\")",
    f"{{'hf_token': '{SECRET}'}}",
    f"Authorization: Bearer {SECRET}",
    f"https://user:{SECRET}@proxy:3128/",
    f"https://hooks.slack.com/services/T00/B00/{SECRET}",
    f"https://discord.com/api/webhooks/123/{SECRET}",
    f"webhook = https://example.org/{SECRET}",
    f"password: {SECRET}",
    f"WANDB_API_KEY: {SECRET}",
    "sk-" + "a1" * 20,
    "hf_" + "aB3" * 12,
    "AKIA" + "ABCD" * 4,
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_stars_of_the_same_length(text: str) -> None:
    clean = scrub.text(text)
    assert SECRET not in clean
    assert clean != text
    assert "*****" in clean
    assert len(clean) == len(text)


@pytest.mark.parametrize("text", SECRETS)
def test_a_log_on_the_screen_goes_by_the_same_rule(text: str) -> None:
    clean = protocol.hide_assigned(text)
    assert SECRET not in clean
    assert protocol.HIDDEN in clean
    assert protocol.hide_assigned(clean) == clean, "what is hidden stays what it is"


@pytest.mark.parametrize(
    "text",
    [
        "Prefill batch, #new-seq: 8, #new-token: 8114, #cached-token: 0, token usage: 0.00, #running-req: 8",
        "input throughput (token/s): 9000.17",
        "KV Cache is allocated. #tokens: 406528, K size: 1.00 GB",
        "max_total_num_tokens=406528, chunked_prefill_size=16384, max_prefill_tokens=16384, context_len=131072",
        "token id 163,840 >= vocabulary 163,840",
        "--tokens-in-flight 65536 --max-total-tokens=4096 --chunked-prefill-size 4096 --num-reserved-decode-tokens=512",
        "eos_token_id=2, pad_token_id=0, bos_token=<s>",
        "'ssl_keyfile_password': None, api_key=None, 'bucket_time_to_first_token': None, use_token=True",
        "'tbo_token_distribution_threshold': 0.48, 'enable_two_batch_overlap': False",
        "the token is sent to the server",
        "tokenizer_path='/models/kimi', skip_tokenizer_init=False",
        "/data/tokenized_data.jsonl",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert scrub.text(text) == text
    assert protocol.hide_assigned(text) == text


def test_values_behind_secret_names() -> None:
    message = {
        "argv": ["python", "--api-key", SECRET, "--tp", "8", f"--admin-api-key={SECRET}"],
        "env": {"HF_TOKEN": SECRET, "CUDA_VISIBLE_DEVICES": "0,1"},
        "tokens_in_flight": 61_004,
        "nested": [{"password": SECRET, "note": f"went with --hf-token {SECRET}"}],
    }
    clean = scrub.tree(message)
    assert SECRET not in str(clean)
    assert clean["argv"][3:5] == ["--tp", "8"]
    assert clean["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert clean["tokens_in_flight"] == 61_004


def test_bytes_that_are_no_text_keep_their_length() -> None:
    line = b"\xff\xfe api_key=\xc3\xa4\xffabc end\n".decode("utf-8", "surrogateescape")
    assert len(scrub.text(line).encode("utf-8", "surrogateescape")) == 22
