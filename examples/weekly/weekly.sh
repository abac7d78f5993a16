#!/usr/bin/env bash
# Ranks the topics of today over the corpus of today, into runs/DATE. Only what changed since the last run is scored.
#
#     weekly.sh [DATE]
#
# An entry for cron: 0 3 * * 1  /srv/weekly/weekly.sh >> /srv/weekly/weekly.log 2>&1
# A run that was interrupted resumes when the same DATE is given again. One that differs too much from the last (gate)
# ends with exit code 4 and does not become `latest`; look at runs/DATE/report, then: ACCEPT=yes weekly.sh DATE
set -euo pipefail
cd "$(dirname "$0")"
exec 9> .lock
# 75 as `beamrank` itself: another attempt may succeed.
flock --nonblock 9 || { echo "the last run has not ended" >&2; exit 75; }

gate=(--fail-if 'nDCG@10 < -0.02' --fail-if 'topics_changed > 0.5')
[ -z "${ACCEPT:-}" ] || gate=()
today=${1:-$(date +%F)}
last=$(readlink latest || true)
[ "$last" != "runs/$today" ] || { echo "runs/$today is finished"; exit 0; }

if [ -n "$last" ] && [ ! -d "$last" ]; then
    echo "runs/$today runs without reuse and baseline: $last, which was the latest, is gone" >&2
    last=
fi

# After an upgrade, or a return to an earlier release, the last output may be of a version that this one cannot read.
if [ -n "$last" ] && { beamrank status "$last" 2>&1 > /dev/null || true; } | grep "written by engine version" >&2; then
    echo "runs/$today runs without reuse and baseline: this beamrank cannot read $last" >&2
    last=
fi

# Metrics while it runs: node_exporter's --collector.textfile.directory=/srv/weekly reads the file.
beamrank run config.yaml --output "runs/$today" ${last:+--reuse "$last"} --metrics beamrank.prom --quiet
if [ -n "$last" ]; then
    beamrank report "runs/$today" --baseline "$last" --no-texts "${gate[@]}"
fi

# The four runs that were accepted last are kept, whatever their dates: an earlier date may be run later. Later runs
# have reused the scores of older ones. Runs of a job that had no list yet are in it by their age.
[ -e accepted ] ||
    find runs -mindepth 1 -maxdepth 1 -type d -name '????-??-??' -printf '%T@ %p\n' | sort -n | cut -d ' ' -f 2 > accepted
{ grep -vxF "runs/$today" accepted || true; echo "runs/$today"; } > .accepted
mv .accepted accepted
ln -sfn "runs/$today" .latest
mv -T .latest latest
head -n -4 accepted | xargs -r rm -rf
tail -n 4 accepted > .accepted
mv .accepted accepted
