"""What a request for predictions holds, and what is answered."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, model_validator

_ID = StrictStr | StrictInt | StrictFloat


class PredictRequest(BaseModel):
    """Nodes of the graph by their ids, or unseen nodes with their edges."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"ids": ["p007", "p042"], "conformal": 0.9},
                {
                    "nodes": [{"id": "n0", "age": 33, "country": "FR"}],
                    "edges": [{"source": "n0", "target": "p486"}, {"source": "n0", "target": "p205"}],
                },
            ]
        },
    )
    ids: list[_ID] | None = Field(None, description="Ids of nodes of the graph.")
    nodes: list[dict[str, Any]] | None = Field(
        None, description="Unseen nodes: an object each, with its id and the columns of the table of nodes."
    )
    edges: list[dict[str, Any]] | None = Field(
        None, description="Their edges, among themselves and to nodes of the graph: a source and a target each."
    )
    conformal: float | None = Field(
        None, description="Also a set of classes, or an interval, that holds the truth with this probability."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> PredictRequest:
        if (self.ids is None) == (self.nodes is None):
            raise ValueError("send either ids, or nodes with their edges")
        if (self.nodes is None) != (self.edges is None):
            raise ValueError("unseen nodes need both: nodes, and edges with their edges")
        if not (self.ids or self.nodes):
            raise ValueError("there is no node to predict; send at least one")
        return self


class Prediction(BaseModel):
    """The answer for one node: a row of ``gpatcher predict``."""

    id: Any
    predicted: str | float = Field(description="The most probable class, or the predicted number.")
    probability: dict[str, float] | None = Field(None, description="Calibrated probability of each class.")
    confidence: float | None = Field(None, description="The largest probability.")
    label: str | float | None = Field(description="The known label, null where there is none.")
    part: str = Field(description="train, validation, test or none.")
    set: list[str] | None = Field(None, description="The conformal set, where a level was sent.")
    low: float | None = Field(None, description="The interval of a number, where a level was sent; null: unbounded.")
    high: float | None = Field(None, description="Its upper end.")


class PredictResponse(BaseModel):
    """A row per node, in the order of the request, and notes such as values outside of what was trained on."""

    nodes: list[Prediction]
    notes: list[str]
