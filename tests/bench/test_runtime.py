from gpatcher.bench.runtime import mixer_seconds


def test_more_patches_take_longer():
    """Twenty times the work, so that no other load on the machine can turn it around."""
    assert 0 < mixer_seconds(200, 8, hidden=16) < mixer_seconds(4000, 8, hidden=16)
