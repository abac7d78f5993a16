"""The coder of record batches."""

from typing import Any

import apache_beam as beam
import pyarrow as pa

SENT_ROWS: Any = tuple[int, pa.RecordBatch]
"""The type of rows on their way to a shard: without it, Beam pickles them."""


class RecordBatchCoder(beam.coders.Coder):
    """A record batch as an Arrow IPC stream: pickle would carry the whole parent of a slice."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return bytes(sink.getvalue())

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(encoded) as reader:
            return reader.read_next_batch()

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return pa.RecordBatch


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)
