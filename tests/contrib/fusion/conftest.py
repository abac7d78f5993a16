from tests.pipelines.commands.conftest import two_runs as two_runs
