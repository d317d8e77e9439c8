"""GCN and FAGCN on the graph made of the patches."""

from gpatcher.bench.plan import Experiment, Row

PRESET = Experiment(
    title="Induced graph: GCN and FAGCN on the patches",
    about="GPatcher is trained first on the same split; each node is then joined to the members of its patch, and the "
    "other model is trained on that graph.",
    datasets=("cora", "chameleon"),
    rows={
        "gcn": Row("gcn", {"induced": True}),
        "fagcn": Row("fagcn", {"induced": True}),
        "gpatcher": Row("gpatcher"),
    },
)
