from gpatcher.bench.tasks import mixer_seconds


def test_more_patches_take_longer():
    """Two thousand times the work, so that no other load on the machine can reverse it."""
    assert 0 < mixer_seconds(10, 8, hidden=16) < mixer_seconds(20_000, 8, hidden=16)


def test_larger_patches_take_longer():
    assert mixer_seconds(500, 2, hidden=16) < mixer_seconds(500, 256, hidden=16)
