#!/usr/bin/env bash
# Runs a cascade on a stand-alone Spark cluster, and waits for it.
#
#   infra/spark/submit.sh CONFIG spark://MASTER:7077 [beamrank's options: --set, --output, --stage] [-- Beam's flags]
#
# Every machine with Spark executors must serve beamrank's workers, from the image of infra/docker/cpu.Dockerfile or from
# a virtual environment with beamrank in it, whose `python` is first on PATH:
#
#   python -m pipelines.runners.workers pool --service_port=50000
#
# Paths in CONFIG must mean the same on all of them: URLs of a bucket, or a file system that all share.
#
# BEAMRANK_WORKER_PORT      where the workers are served, by default 50000
# BEAMRANK_SPARK_CLASSPATH  the job server's jars, with colons between, at the same paths on every machine. Without it some
#                           300 MB are sent for every job, and tasks fail at first on Spark's own Guava 14
set -euo pipefail

if [[ $# -lt 2 || $2 != spark://* ]]; then
  echo "usage: $0 CONFIG spark://MASTER:PORT [beamrank's options] [-- Beam's flags]" >&2
  exit 2
fi
config=$1
master=$2
shift 2
options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  options+=("$1")
  shift
done
if [[ $# -gt 0 ]]; then shift; fi

flags=(
  --spark_master_url="$master"
  --environment_type=EXTERNAL
  --environment_config="localhost:${BEAMRANK_WORKER_PORT:-50000}"
)
jars=${BEAMRANK_SPARK_CLASSPATH:-}
if [[ -n $jars ]]; then
  # One jar is named as all that is to be sent.
  flags+=(--job_server_jvm_properties=-Dspark.executor.extraClassPath="$jars" --files_to_stage="${jars%%:*}")
fi

exec beamrank run "$config" --runner spark "${options[@]}" -- "${flags[@]}" "$@"
