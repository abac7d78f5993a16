"""Open shards are started again after a worker died, so often as is allowed, and after no other error."""

import pytest

from beamrank.commit.status import read_status
from beamrank.errors import BeamrankError, DataError, WorkerLostError
from pipelines.launcher import Launcher
from tests.support.runs import assert_same_bytes
from tests.support.small_collection import small_cascade

DIED = "worker process 7 was killed by signal 9"


def _failing(failures: list[Exception]) -> tuple[type[Launcher], list[int]]:
    """A launcher whose jobs of mono do one shard and fail, as the watchdog says it; and the tasks of each job."""
    jobs: list[int] = []

    class Failing(Launcher):
        def _run_job(self, stage, folder, digests, show, tasks, work, scan):
            if stage.name == "mono":
                jobs.append(len(tasks))
                if failures:
                    super()._run_job(stage, folder, digests, show, tasks[:1], work, scan)
                    raise failures.pop()
            super()._run_job(stage, folder, digests, show, tasks, work, scan)

    return Failing, jobs


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    collection = small_cascade(tmp_path_factory.mktemp("small"))
    collection.run()
    return collection


def test_open_shards_are_started_again_twice(undisturbed, tmp_path, capfd) -> None:
    signed = "https://host/c?X-Amz-Signature=hunter2"
    launcher, jobs = _failing([WorkerLostError(DIED), WorkerLostError(f"the job server of flink died: {signed}")])
    run = undisturbed.plan(output=tmp_path).run(launcher)
    assert jobs == [4, 3, 2]
    assert_same_bytes(tmp_path, undisturbed.output)
    assert [status.retries for status in read_status(run.plan)][2] == (
        "the job server of flink died: https://host/c[hidden]",
        DIED,
    )
    assert f"retrying: {DIED}; 2 of 4 shards are open; attempt 3 of 3" in capfd.readouterr().err


def test_third_death_ends_the_run_and_it_resumes(undisturbed, tmp_path) -> None:
    launcher, jobs = _failing([WorkerLostError(DIED) for _ in range(3)])
    run = undisturbed.plan(output=tmp_path)
    with pytest.raises(BeamrankError, match=rf"{DIED}; that was attempt 3 of 3.*to resume") as raised:
        run.run(launcher)
    assert raised.value.exit_code == 1
    assert jobs == [4, 3, 2]
    run.run()
    assert_same_bytes(tmp_path, undisturbed.output)


@pytest.mark.parametrize("error", [DataError("wrong"), BeamrankError("a stall")])
def test_other_errors_are_not_tried_again(undisturbed, tmp_path, error) -> None:
    launcher, jobs = _failing([error])
    run = undisturbed.plan(output=tmp_path)
    with pytest.raises(type(error), match=str(error)):
        run.run(launcher)
    assert jobs == [4]
    assert [status.retries for status in read_status(run.plan)] == [()] * 4
