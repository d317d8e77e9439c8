"""Commands that put a graph and its patches on disk: `store` and `patches`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpatcher.cli.console import console, gibibytes, option, warnings_as_notes
from gpatcher.cli.sources import Root, load_source, takes_graph
from gpatcher.errors import InputError, counted

if TYPE_CHECKING:
    from rich.console import Console

    from gpatcher.graph.graph import Graph
    from gpatcher.patches.store import PatchTable

_CHECKED = 8  # nodes compared at a time: each takes a few arrays of n numbers


@takes_graph
def store(
    source: dict[str, Any],
    out: Annotated[Path, option("FOLDER", "The new folder; it is a SOURCE for every command.")] = Path("graph"),
    memory: Annotated[float, option("GIB", "Memory for reading edges from tables, in GiB.")] = 1.0,
    root: Root = None,
) -> None:
    """Write a graph to a folder that is memory-mapped when read; tables of edges may be larger than memory."""
    from gpatcher.graph.storage import open_graph, save_graph

    screen, memory_bytes = console(), gibibytes(memory, "--memory")
    if "name" in source:
        save_graph(load_source(source, root), out)
    else:
        from gpatcher.tables.store import store_tables

        with warnings_as_notes(), screen.status("sorting the edges"):
            tables: dict[str, Any] = dict(source)
            store_tables(tables.pop("nodes"), tables.pop("edges"), out, memory=memory_bytes, **tables)
    graph = open_graph(out)
    screen.print(
        f"{counted(graph.n, 'node')} and {counted(graph.m, 'edge')} in {out}, {graph.nbytes / 1e6:,.1f} MB",
        soft_wrap=True,
    )


@takes_graph
def patches(
    source: dict[str, Any],
    out: Annotated[Path, option("FOLDER", "Folder of the table; the same command continues an unfinished one.")] = Path(
        "patches"
    ),
    size: Annotated[int, option("N", "Nodes in a patch, the node itself included.")] = 32,
    c: Annotated[float, option("C", "Damping factor of personalised PageRank, in (0, 1).")] = 0.5,
    eps: Annotated[float, option("EPS", "Residual per degree that is not pushed; smaller is more exact.")] = 1e-5,
    self_loops: Annotated[bool, typer.Option("--self-loops", help="Add a self-loop to every node.")] = False,
    direction: Annotated[str, option("NAME", "Edges that a walk takes: both, out or in.")] = "both",
    edge_type: Annotated[str | None, option("NAME", "Type of the edges that a walk takes. Default: all.")] = None,
    shard: Annotated[
        int | None, option("N", "Nodes in one file of the table. Default: a 128th of all, from 1,024 to 65,536.")
    ] = None,
    threads: Annotated[int | None, option("N", "Threads of the local engine. Default: one per core.")] = None,
    engine: Annotated[str, option("NAME", "local, or ray for a cluster.")] = "local",
    ray_address: Annotated[
        str | None, option("HOST:PORT", "A running Ray cluster, or auto. Default: a local one.")
    ] = None,
    dry_run: Annotated[
        bool, option(None, "Estimate time, memory and disk from a sample of nodes, and write nothing.", "--dry-run")
    ] = False,
    check: Annotated[int, option("N", "Compare N sampled nodes with the exact ranking.", min=0)] = 0,
    root: Root = None,
) -> None:
    """Write the patch of every node to disk, a table that 'gpatcher fit --patches' trains from."""
    from gpatcher.patches.ppr import PPR
    from gpatcher.patches.store import write_patches
    from gpatcher.scale.executors import make_engine

    extractor = PPR(size=size, c=c, eps=eps, self_loops=self_loops, direction=direction, edge_type=edge_type)
    if check and (direction != "both" or edge_type is not None):
        raise InputError(f"--check {check} compares walks on all edges; leave out --direction and --edge-type")
    chosen = make_engine(engine, threads, ray_address)
    graph = load_source(source, root)
    screen = console()
    if dry_run:
        import psutil

        spent = time.time() - psutil.Process().create_time()

        from gpatcher.runs.estimate import estimate_patches

        estimate = estimate_patches(graph, extractor, threads, spent)
        screen.print(f"'gpatcher patches' would take {estimate}.", soft_wrap=True)
        return
    bar = _Bar(screen, graph.n)
    try:
        with bar.bar:
            table = write_patches(graph, out, extractor, shard=shard, engine=chosen, progress=bar.show)
    except KeyboardInterrupt:
        finished = len(list(out.glob("*-*.npy")))
        typer.echo(
            f"stopped: {counted(finished, 'shard is', 'shards are')} finished in {out}; run it again for the rest",
            err=True,
        )
        raise typer.Exit(130) from None
    size_mb = sum((out / name).stat().st_size for name in table.files) / 1e6
    screen.print(
        f"{counted(graph.n, 'patch', 'patches')} of {counted(size, 'node')} in {out}: "
        f"{counted(len(table.files), 'shard')}, {size_mb:,.1f} MB. {bar.summary}",
        soft_wrap=True,
    )
    if check:
        _print_recall(screen, graph, table, check)


class _Bar:
    """A bar with nodes per second and the time left; shards that existed before do not count."""

    def __init__(self, screen: Console, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        rate = TextColumn("{task.fields[rate]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
        self.bar = Progress(*columns, console=screen, transient=True)
        self.task = self.bar.add_task("extracting patches", total=total, rate="")
        self.first: tuple[int, float] | None = None
        self.summary = "All shards existed already."

    def show(self, done: int, total: int) -> None:
        """Show how many nodes are done."""
        now = time.perf_counter()
        if self.first is None:
            self.first = (done, now)
            self.bar.reset(self.task, completed=done)
            self.summary = ""
        elif now > self.first[1]:
            rate = (done - self.first[0]) / (now - self.first[1])
            self.bar.update(self.task, completed=done, rate=f"{rate:,.0f} nodes/s")
            self.summary = f"{rate:,.0f} nodes per second."


def _print_recall(screen: Console, graph: Graph, table: PatchTable, count: int) -> None:
    import numpy as np

    from gpatcher.patches.ppr import ppr_scores, top_recall

    sample = np.random.default_rng(0).choice(graph.n, min(count, graph.n), replace=False)
    parts = []
    for start in range(0, len(sample), _CHECKED):
        part = sample[start : start + _CHECKED]
        exact = ppr_scores(graph, part, table.extractor.c, table.extractor.self_loops)
        parts.append(top_recall(table[part], exact))
    recall = np.concatenate(parts)
    screen.print(
        f"Recall against the exact ranking, {len(recall)} sampled nodes: mean {recall.mean():.4f}, "
        f"smallest {recall.min():.4f}",
        soft_wrap=True,
    )
