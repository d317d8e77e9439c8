from gpatcher.bench.runtime import mixer_seconds, run_times
from gpatcher.report.runtime import runtime_figure


def test_more_patches_take_longer():
    assert 0 < mixer_seconds(10, 4, hidden=8) < mixer_seconds(20_000, 4, hidden=8)


def test_a_record_per_pair_and_a_line_per_size():
    asked = []
    records = list(run_times([2, 5], [4, 8], progress=lambda n, p: asked.append((n, p))))
    assert asked == [(record["nodes"], record["patch_size"]) for record in records] == [(2, 4), (5, 4), (2, 8), (5, 8)]
    plot = runtime_figure(records).plot
    assert [line.name for line in plot.data] == ["p = 4", "p = 8"]
    assert list(plot.data[1].x) == [2, 5]
    assert list(plot.data[1].y) == [record["seconds"] for record in records[2:]]
