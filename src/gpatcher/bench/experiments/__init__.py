"""One file for each table or figure; each holds a `gpatcher.bench.plan.Experiment` called ``EXPERIMENT``."""

# the order in which they are listed and reported; others come after these
ORDER = (
    *("table1", "induced", "extractors", "order", "statistics", "sensitivity", "response", "runtime"),
    *("leak_free", "csbm_sweep", "defaults"),
)
