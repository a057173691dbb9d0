#!/usr/bin/env bash
# Runs programs of others on the emulated driver, and prints which passed.
#
#   run.sh numba          numba-cuda's own tests (PyPI)
#   run.sh cudarc         cudarc's examples (crates.io)
#   run.sh triton         a few kernels of Triton's tutorials (PyPI)
#   run.sh all
#
# Downloads go to target/programs and stay there. The versions are pinned: other versions may ask for other functions.
set -uo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=$root/target/programs
here=$root/crates/emulator/programs
mkdir -p "$work/lib" "$work/logs"

cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p kiln-emulator || exit 1
cp "$root/target/release/libkiln_emulator.so" "$work/lib/libcuda.so.1"
ln -sf libcuda.so.1 "$work/lib/libcuda.so"
export LD_LIBRARY_PATH=$work/lib
failed=0

# report NAME STATUS [TEXT]
report() {
    printf '%-44s %-7s %s\n' "$1" "$2" "${3:-}"
    [ "$2" = passed ] || failed=1
}

# program NAME COMMAND...: one program, which fails by its exit status
program() {
    local name=$1 log
    shift
    log=$work/logs/${name//[ \/]/-}.log
    if timeout 900 "$@" > "$log" 2>&1; then report "$name" passed; else
        report "$name" FAILED "$(grep -m1 -E 'kiln-emulator|rror' "$log" | cut -c1-100)"
    fi
}

# python VENV PACKAGES...: a virtual environment with these packages
python() {
    local venv=$work/$1
    shift
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}

numba() {
    python numba numba==0.68.1 numba-cuda==0.30.4 cuda-bindings==13.5.0 cuda-core==1.2.2 filecheck numpy \
        nvidia-cuda-nvrtc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 || return
    export NUMBA_CUDA_DRIVER=$work/lib/libcuda.so.1 NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=0
    local test
    for test in doc_examples.test_vecadd doc_examples.test_reduction cudapy.test_reduction cudapy.test_atomics \
        cudapy.test_warp_ops cudapy.test_sm cudapy.test_intrinsics cudapy.test_math cudapy.test_print cudapy.test_vectorize; do
        program "numba $test" "$work/numba/bin/python" -m numba.runtests "numba.cuda.tests.$test"
    done
}

cudarc() {
    local to=$work/cudarc from
    mkdir -p "$to/src"
    cat > "$to/Cargo.toml" << EOF
[package]
name = "cudarc-programs"
version = "0.0.0"
edition = "2021"
[dependencies.cudarc]
version = "=0.17.8"
default-features = false
features = ["std", "driver", "nvrtc", "cuda-13000", "dynamic-loading"]
[workspace]
EOF
    echo > "$to/src/lib.rs"
    # The examples come with the crate.
    from=$(cargo metadata --format-version 1 --manifest-path "$to/Cargo.toml" | python3 -c '
import json, os, sys
packages = json.load(sys.stdin)["packages"]
print(next(os.path.dirname(p["manifest_path"]) for p in packages if p["name"] == "cudarc"))') || return
    rm -rf "$to/examples"
    cp -r "$from/examples" "$to/examples"
    rm "$to/examples/08-cupti.rs" "$to/examples/cufile-copy.rs"
    python nvrtc nvidia-cuda-nvrtc==13.0.88 || return
    local nvrtc
    nvrtc=$(dirname "$(find "$work/nvrtc" -name 'libnvrtc.so.13' | head -1)")
    export LD_LIBRARY_PATH=$work/lib:$nvrtc
    local example
    for example in 01-allocate 02-copy 03-launch-kernel 04-streams 05-device-repr 06-threading 09-constant-memory \
        10-function-attributes 12-context-config matmul-kernel nvrtc-compile; do
        # The examples name files relative to their package.
        program "cudarc $example" env -C "$to" cargo run --quiet --example "$example"
    done
}

triton() {
    python triton triton==3.9.0 numpy setuptools || return
    program "triton softmax and matmul" "$work/triton/bin/python" "$here/triton_kernels.py"
}

case ${1:-all} in
    numba | cudarc | triton) "$1" ;;
    all)
        numba
        cudarc
        triton
        ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
esac
exit $failed
