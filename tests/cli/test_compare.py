"""The command `compare`, on runs of graphs without ids."""

import json


def test_two_runs_are_compared(command_in, tmp_path):
    for name, epochs in (("one", 1), ("two", 30)):
        settings = ("--set", f"train.epochs={epochs}", "--set", "model.hidden=8", "--no-compare")
        command_in(tmp_path, "fit", "csbm:n=150,phi=0.8,features=4", "--model", "fast", *settings, "--out", name)
    shown = command_in(tmp_path, "compare", "one", "two", "--out", "c.html").stdout
    assert "test nodes that all runs have in common" in shown
    assert (tmp_path / "c.html").is_file()
    result = json.loads(command_in(tmp_path, "compare", "one", "two", "--json").stdout)
    assert [run["run"] for run in result["runs"]] == ["one", "two"]
    records = [json.loads((tmp_path / name / "records.jsonl").read_text()) for name in ("one", "two")]
    assert [run["accuracy"] for run in result["runs"]] == [record["test_accuracy"] for record in records]
    assert "no predictions.parquet" in command_in(tmp_path, "compare", "one", "no", code=2).stderr
    page = (tmp_path / "two" / "report.html").read_text()
    assert "Command: gpatcher fit csbm:n=150" in page
    assert "What the columns and the edges contribute" in page
    path = tmp_path / "two" / "predictions.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    assert "two/predictions.parquet cannot be read" in command_in(tmp_path, "compare", "one", "two", code=2).stderr
