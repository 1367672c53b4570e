#!/usr/bin/env bash
# Makes the bucket, the registry of images, the cluster and its node pools; what exists stays.
source "$(dirname "$0")/cluster.sh"
options "" "$@"
need PROJECT ZONE NAME BUCKET -- gcloud kubectl python3 git
jobset=https://github.com/kubernetes-sigs/jobset/releases/download/v0.8.1/manifests.yaml

found=$(ask "" gcloud storage buckets describe "gs://$BUCKET" --project="$PROJECT" --format='value(name)')
# Folders of a hierarchical bucket are renamed in one step, on which checkpoints rely.
[[ -n $found ]] || change gcloud storage buckets create "gs://$BUCKET" --project="$PROJECT" --location="$region" \
  --uniform-bucket-level-access --enable-hierarchical-namespace --public-access-prevention
found=$(ask "" gcloud artifacts repositories describe spade --project="$PROJECT" --location="$region" --format='value(name)')
[[ -n $found ]] || change gcloud artifacts repositories create spade --project="$PROJECT" --location="$region" --repository-format=docker

found=$(cluster "")
# Dataplane V2 is what enforces network policies.
[[ -n $found ]] || change gcloud container clusters create "$NAME" --project="$PROJECT" --zone="$ZONE" \
  --release-channel=regular --enable-dataplane-v2 --enable-ip-alias --enable-shielded-nodes \
  --workload-pool="$PROJECT.svc.id.goog" --addons=GcsFuseCsiDriver,RayOperator \
  --machine-type=e2-standard-8 --num-nodes=1

pool() { # NAME HOSTS FLAGS...
  local name=$1 hosts=$2 found
  shift 2
  found=$(ask "" gcloud container node-pools describe "$name" --cluster="$NAME" --project="$PROJECT" --zone="$ZONE" --format='value(status)')
  if [[ -n $found ]]; then
    say "the node pool $name exists"
    return
  fi
  change gcloud container node-pools create "$name" --cluster="$NAME" --project="$PROJECT" --zone="$ZONE" \
    --num-nodes="$hosts" --workload-metadata=GKE_METADATA "$@"
}

spot=()
[[ $CAPACITY != spot ]] || spot=(--spot)
pool trainer "$tpu_hosts" --machine-type="$TPU_MACHINE" --tpu-topology="$TPU_TOPOLOGY" "${spot[@]}"
((SGLANG_HOSTS == 0)) || pool sglang "$SGLANG_HOSTS" --machine-type="$GPU_MACHINE" \
  --accelerator="type=$GPU_TYPE,count=$GPUS,gpu-driver-version=latest" "${spot[@]}"
((SANDBOX_HOSTS == 0)) || pool sandbox "$SANDBOX_HOSTS" --machine-type="$SANDBOX_MACHINE" \
  --image-type=cos_containerd --sandbox=type=gvisor "${spot[@]}"

change gcloud container clusters get-credentials "$NAME" --project="$PROJECT" --zone="$ZONE"
kube apply --server-side --filename="$jobset"
kube apply --filename="$manifests/namespaces.yaml"
number=$(ask PROJECT_NUMBER gcloud projects describe "$PROJECT" --format='value(projectNumber)')
change gcloud storage buckets add-iam-policy-binding "gs://$BUCKET" --project="$PROJECT" --role=roles/storage.objectUser --format=none \
  --member="principal://iam.googleapis.com/projects/$number/locations/global/workloadIdentityPools/$PROJECT.svc.id.goog/subject/ns/spade/sa/spade"
say "the cluster $NAME is ready; next: tpu_launch/gke/build.sh"
