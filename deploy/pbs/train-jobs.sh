#!/usr/bin/env bash
# Trains on workers that are PBS jobs of their own: this job runs the driver, which submits them.
#
#   qsub -v JOB_FILE=letter.toml train-jobs.sh
#
# [cluster] of the job file says how many and how large (kind = "pbs"). Training begins with min_workers of them, the
# others join as they start, and one that reaches its time limit is replaced. The job file names a run ([output] run)
# on a file system that all nodes see. PBS gives no notice of the end of a job, so the driver is stopped STOP_AFTER its
# start and keeps what it has; the same command again goes on from there.

#PBS -N distkern
#PBS -l select=1:ncpus=2:mem=4gb
#PBS -l walltime=24:00:00
#PBS -j oe

set -euo pipefail

cd "${PBS_O_WORKDIR:?submit this script with qsub}"
: "${JOB_FILE:?usage: qsub -v JOB_FILE=JOB.toml train-jobs.sh}"
STOP_AFTER=${STOP_AFTER:-23.9h} # a little less than the walltime above

# What your cluster wants before Python can run; the workers have theirs in [cluster.job] setup.
# module load python/3.12
# source "$HOME/distkern/bin/activate"

# qdel sends TERM to this shell too.
timeout --signal=TERM --preserve-status "$STOP_AFTER" distkern train "$JOB_FILE" --resume auto &
driver=$!
trap 'kill -TERM "$driver"' TERM

# A signal ends the first wait: the driver then stops after the exchange under way, and cancels its workers.
status=0
wait "$driver" || status=$?
while kill -0 "$driver" 2> /dev/null; do
  status=0
  wait "$driver" || status=$?
done
exit "$status"
