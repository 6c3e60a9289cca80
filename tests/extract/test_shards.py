"""Which part of the input is whose, by word or by what Slurm, Kubernetes and torchrun set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.shards import WHOLE, Shard, from_environment, parse


@given(st.integers(1, 9), st.integers(0, 200))
def test_every_item_is_of_one_shard_and_shares_add_up(count: int, total: int) -> None:
    shards = [Shard(index, count) for index in range(count)]
    for number in range(1, total + 1):
        assert sum(shard.has(number) for shard in shards) == 1
    shares = [shard.share(total) for shard in shards]
    assert shares == [sum(shard.has(number) for number in range(1, total + 1)) for shard in shards]
    assert (sum(shares), max(shares) - min(shares) <= 1) == (total, True)


@pytest.mark.parametrize("text", ["2/2", "-1/3", "a/b", "1", "0/0", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ExtractionError, match="A shard is i/n with i from 0 to n-1"):
        parse(text)


def test_the_environment_names_the_shard() -> None:
    assert from_environment({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}) == (
        Shard(3, 8),
        "SLURM_PROCID and SLURM_NTASKS",
    )
    assert from_environment({"RANK": "1", "WORLD_SIZE": "2"})[0] == Shard(1, 2)
    assert from_environment({"JOB_COMPLETION_INDEX": "4", "JOB_COMPLETIONS": "5"})[0] == Shard(4, 5)
    assert from_environment({}) == (WHOLE, "")
    assert from_environment({"RANK": "0"}) == (WHOLE, "")
    assert from_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "1", "WORLD_SIZE": "4"})[0] == Shard(
        1, 4
    )
    with pytest.raises(ExtractionError, match="JOB_COMPLETION_INDEX is 4, but nothing says of how many"):
        from_environment({"JOB_COMPLETION_INDEX": "4"})
    with pytest.raises(ExtractionError, match="RANK=9 and WORLD_SIZE=4 name no shard"):
        from_environment({"RANK": "9", "WORLD_SIZE": "4"})
