"""A language model that orders docs in lists."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.receipts import Manifest
from beamrank.commit.scans import ScanReport
from beamrank.commit.schemas import required
from beamrank.commit.working import shard_at_work
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.errors import DataError, LeftOpenError
from beamrank.ranking.rankings import Rankings, rerank
from contrib.listwise.checkpoint import LanguageModel
from contrib.listwise.client import Access, Reply, server_of
from contrib.listwise.config import ListwiseConfig
from contrib.listwise.consent import check_host, check_requests
from contrib.listwise.prompt import (
    FIRST,
    LETTERS,
    RANK_ZEPHYR,
    Messages,
    Window,
    named_places,
)
from contrib.listwise.windows import (
    Ask,
    Places,
    block_windows,
    borda,
    slide,
    sliding_windows,
)
from models.scoring.answers import Answers, Contents, Cut
from models.stages.base import Key, Stage, Worker
from models.stages.compute import Computed, ShardInputs
from models.stages.planning import Planning, threads_of

_INDICES = pa.list_(pa.int32())
# One row: a query. `order` are places among `doc_ids`, best first; the others are its requests: the
# places of a window's docs, whether it was asked again, and the places in the window that the
# answer names.
LISTS = required(
    query_id=pa.string(),
    doc_ids=pa.list_(pa.string()),
    order=_INDICES,
    windows=pa.list_(_INDICES),
    again=pa.list_(pa.bool_()),
    answers=pa.list_(_INDICES),
)
_SHARDS_AT_A_TIME = 4
_SHOWN = 5
_MOST_TEXT = 1000
_VERSION = "system_fingerprint "


class Asked(Protocol):
    """What answers prompts."""

    def ask(self, model: str, messages: Messages, max_tokens: int, /) -> Reply:
        """The answer; raises LeftOpenError where there is none now."""


class _Unanswered(Exception):
    """No answer is kept."""


class _Request(NamedTuple):
    """What was asked about a window, and the answer."""

    docs: Places
    again: bool
    answer: Mapping[str, Any]


@dataclass
class _Topic:
    """A query with the docs that are ordered, and what was asked about them."""

    query_id: str
    query: str
    doc_ids: Sequence[str]
    texts: Sequence[str]
    contents: Contents
    requests: list[_Request] = field(default_factory=list)

    def window(self, docs: Places) -> Window:
        return Window(self.query, [self.texts[doc] for doc in docs])

    def key(self, docs: Places, again: bool) -> bytes:
        return _key(self.contents, self.query_id, [self.doc_ids[doc] for doc in docs], again)

    def row(self, order: Places) -> dict[str, Any]:
        """Its row of a part. Requests may have been made side by side."""
        asked = sorted(self.requests, key=lambda request: (request.docs, request.again))
        return {
            "query_id": self.query_id,
            "doc_ids": self.doc_ids,
            "order": order,
            "windows": [request.docs for request in asked],
            "again": [request.again for request in asked],
            "answers": [request.answer["order"] for request in asked],
        }


@dataclass(frozen=True, kw_only=True)
class RankLists(Stage):
    """Orders the docs that it receives by the answers of a language model to windows of them."""

    type_name = "listwise"
    section = ListwiseConfig
    schema = LISTS
    needs = "texts"
    # At least.
    input_docs = 2
    any_processor = True
    asks = True
    has_scores = False

    model: Annotated[str, Key("{own_name}.model")]
    template: Annotated[str, Key("{own_name}.template")]
    window: Annotated[int, Key("{own_name}.window", selects=True)]
    stride: Annotated[int, Key("{own_name}.stride", selects=True)]
    order: Annotated[Literal["sliding", "blocks"], Key("{own_name}.order", selects=True)]
    identity: Annotated[str, Key("{own_name}.identity")]
    doc_words: Annotated[int, Key("{own_name}.doc_words")]
    max_answer_tokens: Annotated[int, Key("{own_name}.max_answer_tokens")]
    checkpoint_digest: Annotated[str, Key("{own_name}.checkpoint")] = ""
    answer: Annotated[Literal["text", "logits"], Key("{own_name}.answer")] = "text"
    device: Annotated[str, Key("device")] = ""
    dtype: Annotated[str, Key("dtype")] = ""
    endpoint: str | None
    checkpoint: str | None
    key_variable: str
    requests_at_once: int
    requests_per_minute: int | None
    timeout_seconds: float
    max_requests: int | None
    max_unparsed: float
    threads: int = 1
    gpu: str = ""
    worker: Worker = Worker.CPU

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> LanguageModel | None:  # noqa: ARG003
        reference: str | None = own.section.checkpoint
        return None if reference is None else LanguageModel.read(reference)

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        section: ListwiseConfig = own.section
        default = FIRST if section.answer == "logits" else RANK_ZEPHYR
        template = section.template.text if section.template else default
        own_settings: dict[str, Any] = {
            "template": template,
            "key_variable": section.access.key_variable,
        }
        if checkpoint := planning.checkpoints.get(own.name):
            device, _, gpu = planning.device.device.partition(":")
            own_settings |= {
                "checkpoint": checkpoint.reference,
                "checkpoint_digest": checkpoint.digest,
                "device": device,
                "gpu": gpu,
                "dtype": planning.device.dtype,
                "threads": threads_of(planning.config),
                "worker": Worker.MODEL,
            }
        # `plan` says it in any case.
        elif not (planning.builds and section.access.is_here):
            words = min(section.k, section.window) * section.doc_words + len(template.split())
            planning.progress.warn(
                f"{own.name}: texts of topics and docs go to {section.access.host}, at most "
                f"{words:,} words a request beside the query; a window is asked about once more "
                "where the answer names no doc"
            )
        return super().settings(own, planning) | own_settings

    @property
    def shards_at_a_time(self) -> int:
        """All share the requests of this process; a model here takes one after another."""
        return 1 if self.checkpoint else _SHARDS_AT_A_TIME

    def cost(self, topics: int) -> int:
        """The windows, each of which is asked once unless its answer names nobody."""
        return topics * len(self._windows(self.k))

    @property
    def access(self) -> Access:
        """How the server is asked."""
        return Access(
            self.endpoint or "",
            self.key_variable,
            self.requests_at_once,
            self.requests_per_minute,
            self.timeout_seconds,
        )

    def allow(self, inferences: Callable[[], int]) -> None:
        if self.endpoint and (self.max_requests is not None or not self.access.is_here):
            check_host(self.name, inferences(), self.access, self.max_requests)
            check_requests(self.name, inferences(), self.max_requests)

    def open(self) -> Asked:
        """What answers."""
        if self.checkpoint is None:
            return server_of(self.access)
        from contrib.listwise.local_model import LocalAccess, local_model_of

        device = f"{self.device}:{self.gpu}" if self.gpu else self.device
        by_logits, digest = self.answer == "logits", self.checkpoint_digest
        return local_model_of(
            LocalAccess(self.checkpoint, digest, by_logits, device, self.dtype, self.threads)
        )

    def compute(self, inputs: ShardInputs) -> Computed:
        topics = list(self._topics(inputs))
        windows = sum(len(self._windows(len(topic.doc_ids))) for topic in topics)
        # In memory nobody has asked before.
        if inputs.kept is None:
            self.allow(lambda: windows)
        server = inputs.opened(self.open)
        shard_at_work().add(0, windows)

        def ask(topic: _Topic, docs: Places) -> Places:
            return self._ask(inputs, topic, docs, partial(self._call, server))

        most = 1 if self.checkpoint else self.requests_at_once
        with ThreadPoolExecutor(most) as pool, ThreadPoolExecutor(most) as of_windows:
            ordered = pool.map(
                lambda topic: self._order(topic, partial(ask, topic), of_windows.map), topics
            )
            rows = [topic.row(order) for topic, order in zip(topics, ordered, strict=True)]
        requests = [(topic, request) for topic in topics for request in topic.requests]
        failed = [pair for pair in requests if pair[1].again and not pair[1].answer["order"]]
        counts = Counter(
            {
                "queries": len(topics),
                "windows": windows,
                "unparsed": len(failed),
                "inferences": inputs.counts["requests"] + inputs.counts["kept"],
            }
        )
        for _, request in requests:
            counts.update(_counts(request.answer))
        part = pa.Table.from_pylist(rows, self.schema)
        return Computed(part, counts, [_shown(*pair) for pair in failed[:_SHOWN]])

    def _call(self, server: Asked, window: Window, again: bool) -> dict[str, Any]:
        names = LETTERS if self.answer == "logits" else ""
        messages = window.messages(self.template, self.doc_words, names, again=again)
        reply = server.ask(self.model, messages, self.max_answer_tokens)
        order = named_places(reply.text, len(window.docs))
        return {"order": order, **reply._asdict(), "text": reply.text[:_MOST_TEXT]}

    def _ask(
        self,
        inputs: ShardInputs,
        topic: _Topic,
        docs: Places,
        call: Callable[[Window, bool], Mapping[str, Any]],
    ) -> Places:
        """What the answer to a window names, after two tries at most."""
        named: Places = ()
        for again in (False, True):
            asked = partial(call, topic.window(docs), again)
            answer = inputs.ask(topic.key(docs, again), asked, _names_docs)
            topic.requests.append(_Request(docs, again, answer))
            named = answer["order"]
            if named:
                break
        return named

    def _order(
        self, topic: _Topic, ask: Ask, side_by_side: Callable[..., Iterable[Places]]
    ) -> Places:
        count = len(topic.doc_ids)
        if self.order == "sliding":
            return slide(count, self.window, self.stride, ask)
        windows = block_windows(count, self.window)
        return borda(count, windows, side_by_side(ask, windows))

    def _windows(self, count: int) -> Sequence[Places]:
        if self.order == "sliding":
            return sliding_windows(count, self.window, self.stride)
        return block_windows(count, self.window)

    def _topics(self, inputs: ShardInputs) -> Iterator[_Topic]:
        """The queries with their docs; docs that the corpus lacks are left out."""
        texts = inputs.read(self.tokens)
        contents = Contents.of(texts, instructed=False)
        queries = dict(
            zip(*(texts[name].to_pylist() for name in ("query_id", "query")), strict=True)
        )
        doc_texts = pc.list_flatten(texts["doc_texts"])
        for query_id, docs in sorted(self.received(inputs).items()):
            doc_ids = [doc_id for doc_id in docs if (query_id, doc_id) in contents.rows]
            rows = [contents.rows[query_id, doc_id][1] for doc_id in doc_ids]
            own = doc_texts.take(pa.array(rows, pa.int64())).to_pylist()
            yield _Topic(query_id, queries.get(query_id, ""), doc_ids, own, contents)

    def count(self, inputs: ShardInputs) -> int:
        """The requests of which no answer is kept. Of windows that slide, those after one without
        an answer are not known yet, and count.
        """
        return sum(self._unanswered(inputs, topic) for topic in self._topics(inputs))

    def least(self, inputs: ShardInputs) -> int:
        """Of windows that slide, those after one without an answer may be windows of earlier
        parts.
        """
        missing = (self._unanswered(inputs, topic) for topic in self._topics(inputs))
        return sum(map(bool, missing) if inputs.earlier and self.order == "sliding" else missing)

    def _unanswered(self, inputs: ShardInputs, topic: _Topic) -> int:
        missing = 0

        def ask(docs: Places) -> Places:
            nonlocal missing
            if not missing or self.order == "blocks":
                try:
                    return self._ask(inputs, topic, docs, _call_nobody)
                except (_Unanswered, LeftOpenError):
                    pass
            missing += 1
            return ()

        self._order(topic, ask, map)
        return missing

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        """The answers that name docs."""
        contents = Contents.of(tokens, instructed=False)
        return {
            _key(contents, row["query_id"], [row["doc_ids"][doc] for doc in docs], again): {
                "order": answer
            }
            for row in part.to_pylist()
            for docs, again, answer in zip(
                row["windows"], row["again"], row["answers"], strict=True
            )
            if answer
        }

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        """The docs in the order of the answers, with the scores n - position."""
        assert before is not None
        rows = {
            row["query_id"]: row
            for row in part.select(["query_id", "doc_ids", "order"]).to_pylist()
        }
        rankings = {}
        for query_id, ranking in before.items():
            row = rows.get(query_id, {"doc_ids": (), "order": ()})
            doc_ids = [row["doc_ids"][place] for place in row["order"]]
            scores = np.arange(len(doc_ids), dtype=np.float64)[::-1]
            rankings[query_id] = rerank(query_id, ranking, doc_ids, scores, self.k, k)
        return rankings

    def review(self, manifest: Manifest, scan: ScanReport) -> list[str]:  # noqa: ARG002
        """What was asked and which versions answered.

        Raises:
            DataError: too many answers named nobody.
        """
        totals = Counter[str]()
        for receipt in manifest.receipts:
            totals.update(receipt.counts)
        notes = [
            f"{self.name}: {totals['inferences']:,} requests, {totals['prompt_tokens']:,} tokens "
            f"of prompts and {totals['answer_tokens']:,} of answers"
        ]
        versions = [name.removeprefix(_VERSION) for name in totals if name.startswith(_VERSION)]
        if len(versions) > 1:
            notes.append(
                f"{self.name}: several versions of the model answered, which may order docs "
                f"differently: {', '.join(sorted(versions))}"
            )
        unparsed, windows = totals["unparsed"], totals["windows"]
        if unparsed > self.max_unparsed * windows:
            shown = [text for receipt in manifest.receipts for text in receipt.examples][:_SHOWN]
            raise DataError(
                f"{self.name}: {unparsed:,} of {windows:,} windows keep their order, because two "
                f"answers to each named no doc ({'; '.join(shown)}). That is more than "
                f"{self.name}.max_unparsed {self.max_unparsed:g}: raise it, or give another "
                f"{self.name}.template"
            )
        return notes


def _names_docs(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("order"))


def _call_nobody(*_: Any) -> Mapping[str, Any]:
    raise _Unanswered


def _key(contents: Contents, query_id: str, doc_ids: Sequence[str], again: bool) -> bytes:
    """Names a window by the contents of its docs, in their order, and the try."""
    queries, docs = contents.find([query_id] * len(doc_ids), doc_ids)
    none = np.zeros(1, np.int64)
    cuts = [Cut(doc, none, contents.doc_lengths[doc]) for doc in docs[:, None]]
    (key,) = contents.keys(queries[:1], *cuts)
    return key + bytes([again])


def _counts(answer: Mapping[str, Any]) -> dict[str, int]:
    """What a receipt sums of an answer of a server; an earlier part has none of it."""
    counts = {name: answer.get(name, 0) for name in ("prompt_tokens", "answer_tokens")}
    version = re.sub(r"[^\w.:-]", "_", answer.get("fingerprint", ""))[:64]
    return counts | ({f"{_VERSION}{version}": 1} if version else {})


def _shown(topic: _Topic, request: _Request) -> str:
    first, last = (topic.doc_ids[request.docs[place]] for place in (0, -1))
    return f"query {topic.query_id}, {len(request.docs)} docs from {first} to {last}"
