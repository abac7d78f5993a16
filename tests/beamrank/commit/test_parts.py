"""The reader of a shard's parts, against plain loops over what is stored."""

import pytest

from beamrank.commit.parts import iter_shards, sealed_stages
from beamrank.errors import PreflightError
from beamrank.formats.run_writer import RUN_TABLE
from tests.support.scored_outputs import ScoredOutput


def test_run_tables_say_which_stage_ranked_each_doc(tmp_path):
    made = ScoredOutput(tmp_path).run()
    names = [stage.name for stage in made.plan.stages]
    stored = [made.stored(name).to_pylist() for name in names]
    scored = [
        {(row["query_id"], row["doc_id"]): row["score"] for row in rows} for rows in stored[:2]
    ]
    scored.append(
        dict.fromkeys((row["query_id"], doc_id) for row in stored[2] for doc_id in row["doc_ids"])
    )
    for number, parts in enumerate(iter_shards(made.plan, made.stages, sealed_stages(made.plan))):
        assert (parts.shard, parts.before(names[0])) == (number, None)
        for depth, name in enumerate(names):
            rankings = parts.rankings(name)
            docs = [
                (query_id, *row)
                for query_id, each in rankings.items()
                for row in enumerate(each.doc_ids, 1)
            ]
            table = parts.table(name, rankings)
            assert table.schema.equals(RUN_TABLE, check_metadata=True)
            rows = list(zip(*table.to_pydict().values(), strict=True))
            assert [(query_id, rank, doc_id) for query_id, doc_id, rank, *_ in rows] == docs
            for query_id, doc_id, _, _, stage, score in rows:
                last = max(at for at in range(depth + 1) if (query_id, doc_id) in scored[at])
                assert (stage, score is None) == (names[last], last < depth)
                assert score is None or depth == 2 or score == scored[depth][query_id, doc_id]
            for query_id, each in (parts.before(name) or {}).items():
                below = [
                    doc_id for doc_id in each.doc_ids if (query_id, doc_id) not in scored[depth]
                ]
                assert list(rankings[query_id].doc_ids[rankings[query_id].scored :]) == below
        assert {each.scored for each in parts.rank(parts.stages[1], 3).values()} <= {0, 1, 3}


def test_rows_of_some_queries_are_read_from_their_shards(tmp_path):
    made = ScoredOutput(tmp_path).run()
    shard_of = {topic.query_id: shard.index for shard in made.shards for topic in shard.topics}
    for queries in ({"q0"}, {"q1", "q5"}, set(shard_of)):
        found = list(iter_shards(made.plan, made.stages, sealed_stages(made.plan), queries))
        assert [parts.shard for parts in found] == sorted({shard_of[each] for each in queries})
        assert {
            row for parts in found for row in parts.part("duo")["query_id"].to_pylist()
        } == queries


@pytest.mark.parametrize(
    ("done", "message"),
    [
        (3, "^duo .* --stage duo, .* --set duo=null$"),
        (2, "^mono, duo .* --stage mono, .* --stage duo, .* --set duo=null --set mono=null$"),
        (1, "^retrieve, mono, duo .* --set duo=null --set mono=null$"),
    ],
)
def test_unfinished_stages_are_named_with_their_cures(tmp_path, done, message):
    with pytest.raises(PreflightError, match=message):
        sealed_stages(ScoredOutput(tmp_path).run(done, last_shards=2).plan)
