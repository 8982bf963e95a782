#!/usr/bin/env bash
# Trains on the nodes of this Slurm job: scheduler and driver run on its first node, a worker in each of its tasks.
#
#   sbatch train-srun.sh letter.toml
#
# The job file names a run ([output] run) on a file system that all nodes see. Two minutes before the time limit the
# training stops and keeps what it has; the same command again goes on from there. To queue both at once:
#
#   first=$(sbatch --parsable train-srun.sh letter.toml)
#   sbatch --dependency=afternotok:$first train-srun.sh letter.toml

#SBATCH --job-name=distkern
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=2G
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --output=%x-%j.out

set -euo pipefail

job_file=${1:?usage: sbatch train-srun.sh JOB.toml [option of distkern train ...]}
shift

# What your cluster wants before Python can run, such as:
# module load python/3.12
# source "$HOME/distkern/bin/activate"

# Factors that do not fit the memory go to the node's own disk.
scratch=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}
worker_memory=$((SLURM_MEM_PER_CPU * SLURM_CPUS_PER_TASK))MiB

shared=$(mktemp -d "$PWD/distkern-$SLURM_JOB_ID-XXXXXX")
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$shared"' EXIT

# dask leaves the memory of the workers to distkern.
cat > "$shared/dask.yaml" << 'YAML'
distributed:
  worker:
    memory: {target: false, spill: false, pause: false, terminate: false}
  nanny:
    pre-spawn-environ: {MALLOC_TRIM_THRESHOLD_: null}
YAML
export DASK_CONFIG=$shared/dask.yaml
export DASK_LOGGING__DISTRIBUTED=warning

dask scheduler --port 0 --dashboard-address :0 --scheduler-file "$shared/scheduler.json" &
srun dask worker --scheduler-file "$shared/scheduler.json" --nthreads "$SLURM_CPUS_PER_TASK" \
  --memory-limit "$worker_memory" --local-directory "$scratch" --no-dashboard --death-timeout 120 &

distkern train "$job_file" --resume --scheduler-file "$shared/scheduler.json" \
  --set cluster.min_workers="$SLURM_NTASKS" --set cluster.wait=300 "$@" &
driver=$!
trap 'kill -TERM "$driver"' TERM

# A signal ends the first wait: the driver then stops after the exchange under way.
status=0
wait "$driver" || status=$?
while kill -0 "$driver" 2> /dev/null; do
  status=0
  wait "$driver" || status=$?
done
exit "$status"
