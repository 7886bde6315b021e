#!/bin/bash
#SBATCH --job-name=rondel
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --output=rondel-%j.log
# With GPUs, add: #SBATCH --gpus-per-node=1

# Starts Ray on every node of the job, runs Rondel on the first, and ends Ray with it.
# Submit it from the folder that has your .venv:
#
#     sbatch slurm.sh train ppo CartPole-v1 --on ray --lanes 256 --plan "actor*32 | learner"

set -euo pipefail

source .venv/bin/activate

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(getent ahostsv4 "$first" | awk 'NR == 1 { print $1 }')
port=$((20000 + SLURM_JOB_ID % 10000))

# Ray keeps sockets and logs here; the path must be short, and not on a shared file system.
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID
export RAY_USAGE_STATS_ENABLED=0

# A password of this job's own: others on these nodes can't join, and srun hands it to each node.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

srun --kill-on-bad-exit=1 ray symmetric-run \
    --address "$address:$port" \
    --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" \
    --include-dashboard false \
    -- \
    env RAY_ADDRESS="$address:$port" rondel "$@"
