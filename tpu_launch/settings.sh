# shellcheck shell=bash disable=SC2034
# Everything the scripts of this folder must know, with what it means. Each can also come from the
# environment: NAME=second tpu_launch/create.sh

: "${PROJECT:=}"                     # id of the cloud project
: "${ZONE:=us-east5-a}"              # zone of the slice; docs/pod.md says how to find one
: "${NAME:=spade}"                   # of the slice, its queued resource, the GKE cluster
: "${ACCELERATOR_TYPE:=v5p-128}"     # what to rent: v5p-N (N cores = N/2 chips), v5litepod-N, v6e-N
: "${CAPACITY:=on-demand}"           # on-demand, queued, spot (queued, cheap, can be preempted) or reserved
: "${BUCKET:=}"                      # bucket of run directories and weights, without gs://
: "${SERVICE_ACCOUNT:=}"             # identity of the machines; empty = the project's default one

: "${CONFIG:=configs/games.py:30b}"  # what to train; it names the slice: games.py:4b,v6e:4x4
: "${RUN:=games-30b}"                # name of the run: its directory is runs/RUN in the bucket
: "${TRAIN_FLAGS:=}"                 # more flags of spade_jax.train, separated by spaces

: "${POLL_SECONDS:=30}"              # between two looks at something that takes its time
: "${WAIT_SECONDS:=86400}"           # to wait for capacity at most

# GKE only (tpu_launch/gke/).
: "${TPU_TOPOLOGY:=4x4x4}"           # shape of the slice in chips
: "${TPU_MACHINE:=ct5p-hightpu-4t}"  # machine type of its hosts; the number before the t is chips a host
: "${TPU_LABEL:=tpu-v5p-slice}"      # its cloud.google.com/gke-tpu-accelerator
: "${SGLANG_HOSTS:=0}"               # GPU hosts that sample; 0 = the slice samples
: "${SGLANG_MODEL:=Qwen/Qwen3-30B-A3B-Instruct-2507}"
: "${GPU_MACHINE:=a3-highgpu-8g}"
: "${GPU_TYPE:=nvidia-h100-80gb}"
: "${GPUS:=8}"                       # a GPU host
: "${SANDBOX_HOSTS:=0}"              # hosts for model-written environments; 0 = the slice's own hosts
: "${SANDBOX_MACHINE:=n2-standard-32}"
