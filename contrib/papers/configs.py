"""The configurations that stand beside a converted collection: a run, and the training of Mass et al. 2019."""

_BM25 = """\
# BM25's first {k}: beamrank run bm25.yaml
run_tag: {name}
corpus: {{path: corpus.jsonl, format: jsonl}}
topics: {{path: topics.tsv, format: tsv}}
index: {{path: index}}
bm25: {{k: {k}}}
output: bm25
"""
_BM25_RUN = """\
# BM25's first {k}, with a relevant passage at rank {k} where it found none, re-ranked. After bm25.yaml:
# beamrank add-relevant bm25/runs/bm25.trec --qrels qrels.txt --k {k} --output candidates.trec
# beamrank run config.yaml
run_tag: {name}
corpus: {{path: corpus.jsonl, format: jsonl}}
topics: {{path: topics.tsv, format: tsv}}
qrels: qrels.txt
candidates: {{run: candidates.trec, k: {k}}}
mono: {{checkpoint: "embedded:mono", k: {k}}}   # or one that was trained with train.yaml
measures: [P@1, AP, RR]
output: out
"""
_BM25_TRAINING = """\
# With candidates.trec (see config.yaml), five trainings, each measured on a fifth of the topics that it did not see:
# beamrank train mono train.yaml --folds 5
recipe: nonfactoid                      # BERTlets; nonfactoid-pw is BERT[PW], nonfactoid-ce BERT[CE]
start: google-bert/bert-base-uncased
data:
  corpus: {{path: corpus.jsonl, format: jsonl}}
  topics: {{path: topics.tsv, format: tsv}}
  qrels: qrels.txt
  run: candidates.trec
sampling: {{ranks: [1, {k}]{sampling}}}
folds: {{count: 5, held_out: 0}}
dev:
  topics: {{path: topics.tsv, format: tsv}}
  qrels: qrels.txt
  run: candidates.trec
  k: {k}
  measure: P@1
output: folds
"""
_WIKIPASSAGEQA_RUN = """\
# All passages of each question's article, re-ranked: beamrank run config.yaml
run_tag: wikipassageqa
corpus: {{path: corpus.jsonl, format: jsonl}}
topics: {{path: topics.test.tsv, format: tsv}}
qrels: qrels.test.txt
candidates: {{run: candidates.test.trec, k: {k}}}
mono: {{checkpoint: "embedded:mono", k: {k}}}   # or ./mono, after `beamrank train mono train.yaml`
measures: [AP, RR, P@1]
output: out
"""
_WIKIPASSAGEQA_TRAINING = """\
# beamrank train mono train.yaml
recipe: nonfactoid                      # BERTlets; nonfactoid-pw is BERT[PW], nonfactoid-ce BERT[CE]
start: google-bert/bert-base-uncased
data:
  corpus: {{path: corpus.jsonl, format: jsonl}}
  topics: {{path: topics.train.tsv, format: tsv}}
  qrels: qrels.train.txt
  run: candidates.train.trec
sampling: {{ranks: [1, {k}], negatives: 5}}
dev:
  topics: {{path: topics.dev.tsv, format: tsv}}
  qrels: qrels.dev.txt
  run: candidates.dev.trec
  k: {k}
  measure: AP
output: mono
"""


def bm25_configs(name: str, k: int, sampling: str = "") -> dict[str, str]:
    """For a collection without candidates, whose topics are not divided.

    Args:
        name: the collection's.
        k: the candidates of a topic.
        sampling: more keys of `sampling`.
    """
    return {
        "bm25.yaml": _BM25.format(name=name, k=k),
        "config.yaml": _BM25_RUN.format(name=name, k=k),
        "train.yaml": _BM25_TRAINING.format(k=k, sampling=sampling and f", {sampling}"),
    }


def wikipassageqa_configs(k: int) -> dict[str, str]:
    """For WikiPassageQA, whose longest article has k passages."""
    return {"config.yaml": _WIKIPASSAGEQA_RUN.format(k=k), "train.yaml": _WIKIPASSAGEQA_TRAINING.format(k=k)}
