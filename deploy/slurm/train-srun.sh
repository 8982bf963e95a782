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

# What a worker has, whether the job asks for memory by --mem-per-cpu or by --mem.
cpus=${SLURM_CPUS_PER_TASK:-1}
if [ -n "${SLURM_MEM_PER_CPU:-}" ]; then
  memory=$((SLURM_MEM_PER_CPU * cpus))
elif [ "${SLURM_MEM_PER_NODE:-0}" -gt 0 ]; then
  memory=$((SLURM_MEM_PER_NODE / ${SLURM_TASKS_PER_NODE%%[!0-9]*}))
else
  echo "train-srun.sh: give the job its memory, with --mem-per-cpu or --mem, so that workers know theirs" >&2
  exit 2
fi

# Factors that do not fit the memory go to the node's own disk.
scratch=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}

shared=$(mktemp -d "$PWD/distkern-$SLURM_JOB_ID-XXXXXX")

# Workers leave with their scheduler; what they and srun say of that is not of interest.
# shellcheck disable=SC2317,SC2329  # a trap calls it
finish() {
  cat "$shared/output" > /dev/null &
  kill "${shown:-}" "${scheduler:-}" 2> /dev/null || true
  for _ in {1..20}; do
    kill -0 "${workers:-}" 2> /dev/null || break
    sleep 0.5
  done
  # shellcheck disable=SC2046  # numbers of processes
  kill $(jobs -p) 2> /dev/null || true
  rm -rf "$shared"
}
trap finish EXIT

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
# Before Python 3.12 a process can stop for ever while dask samples its frames.
if python3 -c 'import sys; sys.exit(sys.version_info >= (3, 12))'; then
  export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=false
fi

dask scheduler --port 0 --dashboard-address :0 --scheduler-file "$shared/scheduler.json" &
scheduler=$!
mkfifo "$shared/output"
cat "$shared/output" &
shown=$!
# A step does not take the processors of a task from its job.
srun --cpus-per-task="$cpus" dask worker --scheduler-file "$shared/scheduler.json" --nthreads "$cpus" \
  --memory-limit "${memory}MiB" --local-directory "$scratch" --no-dashboard --death-timeout 120 &> "$shared/output" &
workers=$!

distkern train "$job_file" --resume auto --scheduler-file "$shared/scheduler.json" \
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
