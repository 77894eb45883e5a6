#!/bin/sh
# Prints the path of a ptxas: the machine's own, else NVIDIA's from its Python wheel, unpacked into DIR. get_ptxas.sh DIR
# Only ptxas is taken; nothing of Python is used by moec.
dir=$1
for p in "$MOE_PTXAS" "$(command -v ptxas)" /usr/local/cuda/bin/ptxas "$dir/ptxas"; do
    [ -n "$p" ] && [ -x "$p" ] && { echo "$p"; exit 0; }
done
as=
[ "$(id -u)" = 0 ] || as=sudo
if ! python3 -m pip --version >/dev/null 2>&1; then
    $as env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-pip >/dev/null 2>&1 || exit 3
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip download -q --no-deps -d "$tmp" 'nvidia-cuda-nvcc>=13.0,<13.1' >&2 || exit 3
python3 -m zipfile -e "$tmp"/nvidia_cuda_nvcc*.whl "$tmp/x" || exit 3
mkdir -p "$dir" && cp "$(find "$tmp/x" -name ptxas -type f | head -1)" "$dir/ptxas.new" && chmod 755 "$dir/ptxas.new" &&
    mv "$dir/ptxas.new" "$dir/ptxas" && echo "$dir/ptxas"
