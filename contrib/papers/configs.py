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
_RUN = """\
# {about}
run_tag: {name}
corpus: {{path: corpus.jsonl, format: jsonl}}
topics: {{path: topics{part}.tsv, format: tsv}}
qrels: qrels{part}.txt
candidates: {{run: candidates{part}.trec, k: {k}}}
mono: {{checkpoint: "embedded:mono", k: {k}}}   # or {trained}
measures: [{measures}]
output: out
"""
_TRAINING = """\
# {about}
recipe: nonfactoid                      # BERTlets; nonfactoid-pw is BERT[PW], nonfactoid-ce BERT[CE]
start: google-bert/bert-base-uncased
data:
  corpus: {{path: corpus.jsonl, format: jsonl}}
  topics: {{path: topics{train}.tsv, format: tsv}}
  qrels: qrels{train}.txt
  run: candidates{train}.trec
sampling: {{ranks: [1, {k}]{sampling}}}
{folds}dev:
  topics: {{path: topics{dev}.tsv, format: tsv}}
  qrels: qrels{dev}.txt
  run: candidates{dev}.trec
  k: {k}
  measure: {measure}
output: {output}
"""
_ABOUT_BM25 = """\
BM25's first {k}, with a relevant passage at rank {k} where it found none, re-ranked. After bm25.yaml:
# beamrank add-relevant bm25/runs/bm25.trec --qrels qrels.txt --k {k} --output candidates.trec
# beamrank run config.yaml"""
_ABOUT_FOLDS = """\
With candidates.trec (see config.yaml), five trainings, each measured on a fifth of the topics that it did not see:
# beamrank train mono train.yaml --folds 5"""


def bm25_configs(name: str, k: int, sampling: str = "") -> dict[str, str]:
    """For a collection without candidates, whose topics are not divided.

    Args:
        name: the collection's.
        k: the candidates of a topic.
        sampling: more keys of `sampling`.
    """
    run = {"part": "", "trained": "one that was trained with train.yaml", "measures": "P@1, AP, RR"}
    training = {"train": "", "dev": "", "measure": "P@1", "output": "folds"}
    folds = "folds: {count: 5, held_out: 0}\n"
    return {
        "bm25.yaml": _BM25.format(name=name, k=k),
        "config.yaml": _RUN.format(about=_ABOUT_BM25.format(k=k), name=name, k=k, **run),
        "train.yaml": _TRAINING.format(
            about=_ABOUT_FOLDS, k=k, sampling=sampling and f", {sampling}", folds=folds, **training
        ),
    }


def wikipassageqa_configs(k: int) -> dict[str, str]:
    """For WikiPassageQA, whose longest article has k passages."""
    trained = "./mono, after `beamrank train mono train.yaml`"
    run = {"name": "wikipassageqa", "part": ".test", "trained": trained, "measures": "AP, RR, P@1"}
    training = {"train": ".train", "dev": ".dev", "measure": "AP", "output": "mono", "folds": ""}
    return {
        "config.yaml": _RUN.format(
            about="All passages of each question's article, re-ranked: beamrank run config.yaml", k=k, **run
        ),
        "train.yaml": _TRAINING.format(
            about="beamrank train mono train.yaml", k=k, sampling=", negatives: 5", **training
        ),
    }
