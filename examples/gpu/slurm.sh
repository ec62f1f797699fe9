#!/bin/bash
# sbatch examples/gpu/slurm.sh examples/gpu/job.toml captioner    (in the folder that has examples/)
#
# A job that comes to the end of its time gets TERM ten minutes before, and one that is preempted as long before as the cluster's
# GraceTime says: the training writes a checkpoint, and the job goes back into the queue, where the same command goes on.
#SBATCH --job-name=prill
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=512G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@600

set -uo pipefail
run=("${PYTHON:-python}" examples/gpu/run.py "${1:?the job file}" "${2:?captioner or study}" --gpus "${SLURM_GPUS_ON_NODE:-1}")

"${run[@]}" --dry-run || exit

told=
step=
trap 'told=1; [ -n "$step" ] && kill -TERM "$step"' TERM
srun --kill-on-bad-exit=1 "${run[@]}" &
step=$!
wait "$step"
code=$?
while [ -n "$told" ] && kill -0 "$step" 2>/dev/null; do # the signal ended `wait`, and not the step
    wait "$step"
    code=$?
done
if [ -n "$told" ] && [ "$code" -ne 0 ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
