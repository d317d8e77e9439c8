"""Memory kept during training."""

import resource
import sys
from pathlib import Path

import pytest
import torch

from gpatcher.training.allocator import reuse_memory

MB = 1 << 20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def faults():
    """Pages that new tensors of 64 MB fault in."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.empty(64 * MB, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_freed_memory_is_used_again_and_returned_at_the_end():
    with reuse_memory():
        for _ in range(4):  # until a freed block fits, which the C library aligns differently each time
            faults()
        held = resident()
        assert faults() < 32_000  # 65,536 pages otherwise
    assert resident() < held - 32 * MB


def test_an_error_comes_through():
    with pytest.raises(KeyError), reuse_memory():
        raise KeyError
