"""Record batches travel as Arrow IPC, never pickled."""

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beamrank.commit.receipts import StageFolder
from beamrank.formats.corpora import FORMATS
from beamrank.formats.schemas import Hints
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.doc_hashes import NeededList
from models.stages.corpus_scan import CorpusScan, UnitFile
from tests.support.models.stages import a_stage
from transforms.scatter import RecordBatchCoder, ScatterRows
from transforms.shards import TaskFile


def batch(rows: int) -> pa.RecordBatch:
    tokens = pa.array([[number % 999, 1] for number in range(rows)], pa.list_(pa.uint16()))
    return pa.record_batch({"doc_id": [str(number) for number in range(rows)], "tokens": tokens})


def test_coder_keeps_a_batch() -> None:
    coder = RecordBatchCoder()
    assert coder.decode(coder.encode(batch(10))) == batch(10)
    assert coder.encode(batch(10)) == coder.encode(batch(10))
    empty = coder.decode(coder.encode(batch(10).slice(0, 0).replace_schema_metadata({"task": "x"})))
    assert empty.num_rows == 0
    assert empty.schema.metadata == {b"task": b"x"}


def test_coder_encodes_only_a_slice() -> None:
    coder = RecordBatchCoder()
    part = batch(100_000).slice(50_000, 10)
    assert coder.decode(coder.encode(part)) == part
    assert len(coder.encode(part)) < 4096


def _components(pipeline: beam.Pipeline) -> beam_runner_api_pb2.Components:
    return pipeline.to_runner_api().components


def _leaf_coders(components: beam_runner_api_pb2.Components, coder_id: str) -> list[str]:
    coder = components.coders[coder_id]
    if coder.component_coder_ids:
        return [
            leaf for each in coder.component_coder_ids for leaf in _leaf_coders(components, each)
        ]
    decoded: Any = beam.coders.Coder.from_runner_api(coder, _Context(components))
    return [type(decoded).__name__]


class _Context:
    """What a coder's proto is decoded in."""

    def __init__(self, components: beam_runner_api_pb2.Components) -> None:
        self.coders = self
        self._components = components

    def get_by_id(self, coder_id: str) -> Any:
        return beam.coders.Coder.from_runner_api(self._components.coders[coder_id], self)


def test_join_shuffle_uses_the_batch_coder() -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    unit = CorpusUnit(0, "corpus.tsv", FORMATS["tsv"], Hints(format="tsv"), 0, 0)
    joins = ((a_stage("tokenize"), StageFolder("out")),)
    scan = CorpusScan(joins, NeededList((), 0), UnitFile("units", unit, 0))
    _ = pipeline | beam.Create([]) | "Join" >> ScatterRows(scan, TaskFile("tasks", "", 0))
    components = _components(pipeline)
    grouped = [
        transform
        for transform in components.transforms.values()
        if transform.unique_name.endswith("Join/GroupByKey")
        and transform.spec.urn == "beam:transform:group_by_key:v1"
    ]
    assert len(grouped) == 1
    for inputs in grouped[0].inputs.values():
        leaves = _leaf_coders(components, components.pcollections[inputs].coder_id)
        assert leaves == ["VarIntCoder", "RecordBatchCoder"]
