#!/usr/bin/env bash
# Trains on workers that are Slurm jobs of their own: this job runs the driver, which submits them.
#
#   sbatch train-jobs.sh letter.toml
#
# [cluster] of the job file says how many and how large (kind = "slurm"). Training begins with min_workers of them, the
# others join as they start, and one that reaches its time limit is replaced. The job file names a run ([output] run)
# on a file system that all nodes see. Two minutes before its own time limit the driver stops and keeps what it has;
# the same command again goes on from there.

#SBATCH --job-name=distkern
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --output=%x-%j.out

set -euo pipefail

job_file=${1:?usage: sbatch train-jobs.sh JOB.toml [option of distkern train ...]}
shift

# What your cluster wants before Python can run; the workers have theirs in [cluster.job] setup.
# module load python/3.12
# source "$HOME/distkern/bin/activate"

distkern train "$job_file" --resume auto "$@" &
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
