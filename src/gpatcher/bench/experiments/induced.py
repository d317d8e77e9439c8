"""GCN and FAGCN on the graph made of the patches."""

from gpatcher.bench.plan import Experiment, Row

EXPERIMENT = Experiment(
    title="Induced graph: GCN and FAGCN on the patches",
    description="GPatcher is trained first on the same split; each node is then joined to the members of its patch, "
    "and the other model is trained on that graph.",
    datasets=("cora", "chameleon"),
    rows={
        "gcn": Row("gcn", ablation={"induced": True}),
        "fagcn": Row("fagcn", ablation={"induced": True}),
        "gpatcher": Row("gpatcher"),
    },
)
