#!/usr/bin/env bash
# Builds the images of the last commit with Cloud Build; those that exist are not built again.
source "$(dirname "$0")/cluster.sh"
options "" "$@"
need PROJECT ZONE -- gcloud git

source_folder=$(mktemp -d)
trap 'rm -rf "$errors" "$source_folder"' EXIT
change git -C "$launch/.." archive --format=tar.gz --output="$source_folder/source.tar.gz" HEAD
roles=(trainer)
((SGLANG_HOSTS == 0)) || roles+=(sglang)
((SANDBOX_HOSTS == 0)) || roles+=(sandbox)
for role in "${roles[@]}"; do
  found=$(ask "" gcloud artifacts docker images describe "$images/$role:$tag" --project="$PROJECT" --format='value(image_summary.digest)')
  if [[ -n $found ]]; then
    say "$images/$role:$tag exists"
    continue
  fi
  change gcloud builds submit "$source_folder/source.tar.gz" --project="$PROJECT" --region="$region" \
    --config="$launch/containers/build.yaml" --substitutions="_ROLE=$role,_IMAGE=$images/$role:$tag"
done
say "next: tpu_launch/gke/run.sh"
