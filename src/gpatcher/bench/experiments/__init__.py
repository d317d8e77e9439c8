"""One file for each table or figure; each holds a `gpatcher.bench.plan.Experiment` called ``PRESET``."""

# the order in which they are listed and reported; a file that is not named here comes after these
ORDER = (
    "table1",
    "induced",
    "extractors",
    "order",
    "statistics",
    "sensitivity",
    "response",
    "runtime",
    "honest",
    "dial",
    "defaults",
)
