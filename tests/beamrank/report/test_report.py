"""The report of a run: its numbers against the evaluator, its page, and what it reports to be
missing.
"""

import dataclasses
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from beamrank.commit.status import Retry
from beamrank.errors import ConfigError
from beamrank.evaluation.evaluate import evaluate
from beamrank.evaluation.significance import compare_evaluations, corrected
from beamrank.formats.qrels import read_qrels
from beamrank.machine import describe_machine
from beamrank.plugins import options_of
from beamrank.ranking.rankings import doc_orders
from beamrank.ranking.variants import Depths
from beamrank.report.blocks import Picture, TableBlock, marked_text
from beamrank.report.page import SECTIONS, render, report_part, write_report
from beamrank.report.pictures import COLORS
from beamrank.report.report import ReportSettings, gather
from pipelines.commands.arguments import open_runs
from tests.support.runs import run_here
from tests.support.scored_outputs import ScoredOutput
from tests.support.small_collection import SmallCollection
from tests.support.tiers import slow_but

EVIL = "<script>alert(1)</script>\"'><img/src=x/onerror=alert(1)>{{7*7}}"
QUICK = ReportSettings(depths=Depths(opponents=(2,), trials=2))


def _gather(output, settings=QUICK, **changed):
    return gather(output.runs(**changed), settings)


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    made = ScoredOutput(tmp_path_factory.mktemp("made")).run()
    made.write_corpus()
    return made


@pytest.fixture(scope="module")
def report(output):
    return _gather(output)


def _rankings(output):
    """Of each run, query by query."""
    runs = output.runs()
    found: dict[str, dict[str, Sequence[str]]] = {run: {} for run in runs.all}
    for parts in runs.shards():
        for run, ranked in found.items():
            ranked |= dict(doc_orders(runs.rankings(parts, run)))
    return found


def test_measures_equal_the_evaluator_for_every_stage_and_aggregation(output):
    names = ["RR@10", "nDCG@10", "AP", "Bpref", "Judged@10"]
    found = _gather(output, measures=tuple(names)).evaluations
    qrels = read_qrels(output.plan.config["qrels"])
    assert len(found) == 9
    for run, rankings in _rankings(output).items():
        expected = evaluate(rankings.items(), qrels, names, output.query_ids)
        assert found[run].means == pytest.approx(expected.means, abs=1e-12)
        assert found[run].per_query.keys() == expected.per_query.keys()
        for query_id, values in expected.per_query.items():
            assert found[run].per_query[query_id] == pytest.approx(values, abs=1e-12)
        assert found[run].notes == expected.notes


def test_differences_are_tested_and_those_of_configured_runs_corrected(report):
    base = report.evaluations["candidates"]
    expected = [
        (run, each.p_value)
        for run in report.runs[1:]
        for name, each in compare_evaluations(report.evaluations[run], base).items()
        if not name.startswith("Judged")
    ]
    assert [(each.run, each.comparison.p_value) for each in report.tested] == expected
    chosen = [p_value for run, p_value in expected if run in ("mono", "duo-sum")]
    found = {
        run: [each.corrected_p_value for each in report.tested if each.run == run]
        for run in report.runs
    }
    assert found["mono"] + found["duo-sum"] == corrected(chosen, "holm")
    assert {each for run in report.runs if run not in report.steps for each in found[run]} == {None}


def test_rank_changes_are_the_largest_of_judged_docs(output, report):
    rankings, qrels = _rankings(output), read_qrels(output.plan.config["qrels"])
    for before, after in (("candidates", "mono"), ("mono", "duo-sum")):
        expected = []
        for query_id, judged in qrels.relevance.items():
            ranks = [
                {doc_id: rank for rank, doc_id in enumerate(rankings[run].get(query_id, ()), 1)}
                for run in (before, after)
            ]
            expected += [
                abs(ranks[0][doc_id] - ranks[1][doc_id]) for doc_id in judged if doc_id in ranks[0]
            ]
        found = [abs(each.places) for each in report.changes if each.after == after]
        assert found == [places for places in sorted(expected, reverse=True) if places][:10]


def test_views_have_the_opponents_of_docs_that_were_compared(output, report):
    compared = {row["query_id"]: row["doc_ids"] for row in output.stored("duo").to_pylist()}
    for view in report.views["q1"]:
        assert set(view.details) == ({"duo-sum"} if view.doc_id in compared["q1"] else set())
        for opponent in view.details.get("duo-sum", {}).values():
            assert opponent.doc_id in set(compared["q1"]) - {view.doc_id}


class _Page(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.targets = [], [], "", set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_report(str(folder), [report_part(report)])
    return folder


def test_page_links_to_itself_alone(written, report):
    page = _Page((written / "report.html").read_text())
    ids = {value for name, value in page.attributes if name == "id"}
    links = [
        value for name, value in page.attributes if name in ("href", "src", "action", "srcset")
    ]
    assert links
    assert all(link.startswith("data:image/svg+xml;base64,") or link[1:] in ids for link in links)
    for title in report_part(report).sections:
        assert title in page.text


def test_sections_are_in_the_order_in_which_they_are_read(written, report, tmp_path):
    """Pictures come before tables, and what identifies the run is last."""
    titles = [
        "Pictures",
        "Measures",
        "Cost",
        "Queries",
        "Largest rank changes",
        "Inputs, machines and settings",
    ]
    page = (written / "report.html").read_text()
    assert re.findall(r"<h2[^>]*>([^<]*)<", page)[-6:] == titles
    pictures, measures, *_, last = [page.index(f">{title}</h2>") for title in titles]
    assert pictures < page.index("<figure>") < page.rindex("<figure>") < measures
    assert page.index(report.executed.plan.output) > last
    unfinished = _gather(ScoredOutput(tmp_path).run(2))
    first = next(iter(report_part(unfinished).sections.values()))
    assert {*unfinished.missing} <= {getattr(block, "text", None) for block in first}


def test_title_has_the_end_of_the_path_and_the_inputs_all_of_it(written, output):
    page = (written / "report.html").read_text()
    assert re.findall(r"<h1[^>]*>([^<]*)<", page) == [f"made: {output.folder.name}/out"]
    assert f">{output.plan.output}</td>" in page


def test_bars_of_topics_with_a_section_lead_to_it(written, report):
    page = (written / "report.html").read_text()
    links = re.findall(r'<a href="#([^"]*)" title="([^"]*)"', page)
    shown = [query_id for query_id in report.differences if query_id in report.views]
    assert 2 <= len(shown) < len(report.differences)
    assert [title.split(":")[0] for _, title in links] == shown
    for anchor, title in links:
        assert f'<details id="{anchor}"><summary><h3>{title.split(":")[0]}: ' in page


def test_stages_have_one_color_in_all_pictures(written):
    drawn = {path.stem: path.read_text() for path in written.glob("*.svg")}
    colors = {name: {color for color in COLORS if color in svg} for name, svg in drawn.items()}
    first, mono, duo, *_ = COLORS
    assert colors == {
        "figure-2": {first, mono},
        "figure-3": {mono, duo},
        "differences": {first, duo},
        "scores-1": {first},
        "scores-2": {mono},
    }


def test_page_names_the_machine_and_the_versions(written):
    text, machine = _Page((written / "report.html").read_text()).text, describe_machine()
    shown = (
        f"{machine.processor}, {machine.cores} cores",
        machine.python,
        *machine.libraries.values(),
    )
    assert all(each in text for each in shown)
    assert "retrieve 3, mono 3, duo 3" in text


def test_files_of_a_report(written, report):
    names = {
        "report.html",
        "curves.csv",
        "tables.md",
        "tables.tex",
        "figure-2.svg",
        "figure-3.svg",
        "differences.svg",
    }
    assert names <= {path.name for path in written.iterdir()}
    for path in written.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert (
        f"| mono | {report.evaluations['mono'].means['RR@10']:.4f} |"
        in (written / "tables.md").read_text()
    )
    assert r"\toprule" in (written / "tables.tex").read_text()


@pytest.mark.slow
def test_same_run_gives_the_same_bytes(written, report, tmp_path):
    write_report(str(tmp_path), [report_part(report)])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in written.iterdir()
    }


def test_ids_and_texts_are_escaped(tmp_path):
    output = ScoredOutput(tmp_path, prefix=EVIL, topics=4).run()
    output.write_corpus()
    write_report(str(tmp_path), [report_part(_gather(output))])
    page = _Page((tmp_path / "report.html").read_text())
    assert page.tags.count("script") == 1
    assert page.tags.count("img") == len(list(tmp_path.glob("*.svg")))
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "alert(1)</script>" in page.text
    assert "{{7*7}}" in page.text


@pytest.mark.slow
def test_page_says_why_shards_were_started_again(tmp_path):
    output = ScoredOutput(tmp_path, topics=4).run()
    Retry(output.plan.digest, "mono", "worker process 7 died", 1.0).publish(output.plan.output)
    write_report(str(tmp_path), [report_part(_gather(output))])
    page = _Page((tmp_path / "report.html").read_text())
    assert "The open shards of mono were started again: worker process 7 died." in page.text


def test_long_tables_and_queries_are_folded(written, report):
    page = (written / "report.html").read_text()
    folded = re.findall(r"<details[^>]*><summary>(?:<h3>)?([^<]*)", page)
    assert any(title.endswith("p is not corrected: 48 rows") for title in folded)
    assert sum(title.split(":")[0] in report.views for title in folded) == len(report.views)
    assert page.count("<details") == page.count("</details>") == len(folded)


@pytest.mark.slow
def test_means_of_a_trial_say_so(output):
    config = output.plan.config | {"topics": {**output.plan.config["topics"], "limit": 7}}
    limited = dataclasses.replace(
        output.runs(), plan=dataclasses.replace(output.plan, config=config)
    )
    found = gather(limited, QUICK)
    part = report_part(found)
    captions = [block.caption for kind in (TableBlock, Picture) for block in part.blocks(kind)]
    titles = [
        caption for caption in captions if re.match(r"(Means|Measures|Differences|RR@10) ", caption)
    ]
    assert len(titles) == 7
    assert all("a trial: the first 7 topics only, topics.limit" in title for title in titles)


def test_words_of_the_query_are_marked_whatever_their_case():
    pieces = marked_text("Pizza, and pizzas: the PIZZA stone.", "which pizza stone?")
    assert [text for text, marked in pieces if marked] == ["Pizza", "PIZZA", "stone"]
    assert "".join(text for text, _ in pieces) == "Pizza, and pizzas: the PIZZA stone."


def test_run_without_qrels_shows_what_needs_none(output, tmp_path):
    found = _gather(output, qrels=None)
    assert [line for line in found.missing if "no qrels" in line]
    assert not found.evaluations
    sentence, table, *lines = report_part(found).sections["The answer"]
    assert sentence.text.startswith("duo-sum changes the order of 5 of 5 topics")
    assert [column.name for column in table.table.columns][:3] == [
        "run",
        "topics in another order",
        "inferences",
    ]
    assert [line.text for line in lines] == ["No warnings.", *found.missing]
    assert found.views
    write_report(str(tmp_path), [report_part(found)])
    page = (tmp_path / "report.html").read_text()
    assert "The run has no qrels" in page
    assert "Stages: cost and losses" in page
    assert "figure-2" not in {path.stem for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("stages", "runs"), slow_but(2, [(0, []), (1, ["candidates"]), (2, ["candidates", "mono"])])
)
def test_unfinished_run_shows_the_finished_stages(tmp_path, stages, runs):
    found = _gather(ScoredOutput(tmp_path).run(stages))
    assert list(found.evaluations) == found.runs == runs
    assert (
        len([line for line in found.missing if "is not finished (0 of 3 shards)" in line])
        == 3 - stages
    )
    write_report(str(tmp_path / "page"), [report_part(found)])
    assert "is not finished" in (tmp_path / "page" / "report.html").read_text()


@pytest.mark.slow
def test_run_that_was_killed_midway_shows_the_stages_before(tmp_path):
    found = _gather(ScoredOutput(tmp_path).run(3, last_shards=2))
    assert found.runs == ["candidates", "mono"]
    assert [
        line for line in found.missing if line.startswith("duo is not finished (2 of 3 shards)")
    ]
    assert list(found.curves) == ["mono"]
    write_report(str(tmp_path / "page"), [report_part(found)])
    assert "2 of 3" in (tmp_path / "page" / "report.html").read_text()


@pytest.mark.parametrize(
    "keys", slow_but(1, [{"topics": 1}, {"topics": 2}, {"topics": 7, "depths": (1, 1, 1)}])
)
def test_smallest_runs_have_a_report(tmp_path, keys):
    found = _gather(ScoredOutput(tmp_path, **keys).run())
    write_report(str(tmp_path), [report_part(found)])
    assert (tmp_path / "report.html").exists()


def test_constant_scores_keep_the_first_stages_order(tmp_path):
    found = _gather(ScoredOutput(tmp_path, spread=0.0).run())
    assert set(found.differences.values()) == {0.0}
    assert not found.changes
    assert {each.comparison.p_value for each in found.tested} == {None}
    points = [point for each in found.curves.values() for point in each if point.measure == "AP"]
    assert len({point.value for point in points if point.variant.trial != "sd"}) == 1
    write_report(str(tmp_path), [report_part(found)])
    assert (tmp_path / "scores-1.svg").exists()


def test_queries_without_judgments_are_left_out_and_named(report):
    judged = {row for each in report.evaluations.values() for row in each.per_query}
    assert "q0" not in judged | set(report.differences)
    assert (
        "topics of the run without judgments: 1 ('q0')"
        in _Page(render([report_part(report)]).decode()).text
    )


def test_unknown_baseline_is_an_error_that_names_the_runs(output):
    with pytest.raises(ConfigError, match="candidates, mono, duo-sum"):
        _gather(output, dataclasses.replace(QUICK, baseline="bm25"))


def test_corpus_that_is_gone_leaves_the_passages_out(tmp_path):
    found = _gather(ScoredOutput(tmp_path).run())
    assert [line for line in found.missing if line.startswith("No passages are shown")]


def test_section_of_a_package_is_on_the_page_and_brings_options(report, tmp_path, monkeypatch):
    (tmp_path / "outside.py").write_text(
        "from beamrank.report.blocks import Paragraph, Section\n"
        "def ours(report, *, words: str = 'more', paths: tuple[str, ...] = ()):\n"
        "    return [Paragraph(f'{len(report.runs)} & {words} of {len(paths)}')]\n"
        "section = Section(ours)\n"
        "leading = Section(lambda report: [Paragraph('leads')], leads=True)\n"
    )
    (tmp_path / "outside-1.0.dist-info").mkdir()
    (tmp_path / "outside-1.0.dist-info/entry_points.txt").write_text(
        "[beamrank.report_sections]\nOurs = outside:section\nLeading = outside:leading\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(SECTIONS, "_entries", None)
    sections = SECTIONS.importable().values()
    assert {"words", "score_missing"} <= {
        each.name for section in sections for each in options_of(section.blocks)
    }
    part = report_part(report, {"words": "others", "paths": ["a"]})
    titles = list(part.sections)
    assert titles[titles.index("Pictures") - 1] == "Leading"
    assert titles[-2:] == ["Ours", "Inputs, machines and settings"]
    write_report(str(tmp_path), [part])
    page = (tmp_path / "report.html").read_text()
    assert re.search(r">Ours</h2>\s*<p>9 &amp; others of 1</p>", page)


@pytest.mark.parametrize(
    ("rule", "segments"),
    [
        ("original", None),
        ("paper", None),
        ("paper", {"length_tokens": 20, "stride_tokens": 15, "limit": 3}),
    ],
)
def test_truncated_candidates_are_those_that_the_models_counted(
    tmp_path, checkpoints, rule, segments
):
    collection = SmallCollection(tmp_path).given_run().with_models(checkpoints, 6, 3)
    collection.keys["input"] = {"truncation": rule, "max_query_length": 16, "max_length": 120}
    if segments:
        collection.keys["mono"]["segments"] = segments
    plan, _ = run_here(collection.path)
    runs = open_runs(plan.output)
    views = [view for topic in plan.topics for view in runs.views(topic.query_id, {})]
    for model, scored in (("mono", 60), ("duo", 30)):
        of_model = [view for view in views if any(run.startswith(model) for run in view.scores)]
        found = sum(model in (view.truncated or ()) for view in of_model)
        assert len(of_model) == scored
        assert found == plan.seal(model).total("truncated_docs")
        assert 0 < found < scored
    rows = {row.stage: row for row in gather(runs, QUICK).stages}
    for model, run in (("mono", "mono"), ("duo", "duo-sum")):
        first = [view for view in views if run in view.scores and view.ranks[run] <= 10]
        assert rows[model].first_docs == len(first)
        assert rows[model].cut_docs == sum(model in (view.truncated or ()) for view in first) > 0
    assert rows["retrieve"].first_docs == 0
