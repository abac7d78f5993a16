#!/usr/bin/env bash
# Runs a cascade on a stand-alone Spark cluster, and waits for it.
#
#   infra/spark/submit.sh CONFIG spark://MASTER:7077 [beamrank's options: --set, --output, --stage]
#
# Every machine with Spark executors must serve beamrank's workers, from the image of infra/docker/cpu.Dockerfile or from
# a virtual environment with beamrank in it, whose `python` is first on PATH:
#
#   python -m pipelines.pool --service_port=50000
#
# Paths in CONFIG must mean the same on all of them: URLs of a bucket, or a file system that all share.
set -euo pipefail

if [[ $# -lt 2 || $2 != spark://* ]]; then
  echo "usage: $0 CONFIG spark://MASTER:PORT [beamrank's options]" >&2
  exit 2
fi
config=$1
master=$2
shift 2

exec beamrank run "$config" --runner spark "$@" -- \
  --spark_master_url="$master" \
  --environment_type=EXTERNAL \
  --environment_config="localhost:${BEAMRANK_WORKER_PORT:-50000}"
