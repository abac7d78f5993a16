"""What is told of a teacher's scores, and of a run's, before a training begins."""

import pytest

from beamrank.errors import PreflightError
from models.training.config import SamplingConfig
from tests.models.training.data.test_mining import data_config, mined


@pytest.mark.parametrize(
    ("score", "ranks"),
    [
        (lambda topic, rank: 7 - rank, True),
        (lambda topic, rank: rank, True),
        (lambda topic, rank: -rank - topic, True),
        (lambda topic, rank: 1 / (60 + rank), True),
        (lambda topic, rank: 9.5 - rank - 0.1 * topic, False),
        (lambda topic, rank: float(rank < 2 + topic % 2), False),
    ],
    ids=["down", "up", "shifted", "reciprocal", "scores", "grades"],
)
def test_teachers_ranks_are_refused(score, ranks, tmp_path):
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    rows = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    taught = [f"{row[0]} Q0 {row[2]} 1 {score(int(row[0][1:]), int(row[3]))} t" for row in rows]
    (tmp_path / "teacher.trec").write_text("\n".join(taught) + "\n")
    if not ranks:
        assert mined(data, SamplingConfig(), tmp_path).source.groups_per_epoch
        return
    with pytest.raises(PreflightError, match=r"the scores of .*teacher\.trec are ranks"):
        mined(data, SamplingConfig(), tmp_path)


def test_teacher_between_0_and_1_is_said(tmp_path):
    """Such as probabilities, whose differences teach next to nothing where log-odds are expected."""
    for scale, lines in ((0.01, 1), (1.0, 0)):
        data = data_config(tmp_path / str(scale), teacher=str(tmp_path / str(scale) / "teacher.trec"))
        rows = [line.split() for line in (tmp_path / str(scale) / "run.trec").read_text().splitlines()]
        taught = [
            f"{row[0]} Q0 {row[2]} 1 {scale * (20.5 - int(row[3]) ** 1.1 - len(row[2]) * int(row[0][1:]) % 3)} t"
            for row in rows
        ]
        (tmp_path / str(scale) / "teacher.trec").write_text("\n".join(taught) + "\n")
        found = mined(data, SamplingConfig(), tmp_path / str(scale)).source.lines
        assert len([line for line in found if "between 0 and 1" in line]) == lines


def test_scores_in_the_other_direction_are_said(tmp_path):
    """Of a teacher: distances, or logits of not relevant; of a run: its best docs would be the worst."""
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    qrels = {tuple(line.split()[::2]) for line in (tmp_path / "qrels.txt").read_text().splitlines()}
    rows = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    for sign, lines in ((1, 0), (-1, 1)):
        taught = [f"{r[0]} Q0 {r[2]} 1 {sign * 9.5 * ((r[0], r[2]) in qrels) + int(r[0][1:]) / 7} t" for r in rows]
        (tmp_path / "teacher.trec").write_text("\n".join(taught) + "\n")
        found = mined(data, SamplingConfig(), tmp_path).source.lines
        assert len([line for line in found if "upside down" in line]) == lines
        assert not [line for line in found if "rank disagrees" in line]
    (tmp_path / "run.trec").write_text("".join(f"{r[0]} Q0 {r[2]} {r[3]} {r[3]} t\n" for r in rows))
    found = mined(data, SamplingConfig(), tmp_path).source.lines
    assert len([line for line in found if "rank disagrees" in line]) == 1
