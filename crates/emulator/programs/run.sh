#!/usr/bin/env bash
# Runs third-party programs on the emulated driver, and prints the results of each.
#
#   run.sh numba          numba-cuda's own tests (PyPI)
#   run.sh cudarc         cudarc's examples (crates.io)
#   run.sh triton         a few kernels of Triton's tutorials (PyPI)
#   run.sh runtime        a check of the CUDA runtime that the next two use
#   run.sh llmc           kernels of llm.c (GitHub, or the folder that $LLMC names)
#   run.sh samples        programs of NVIDIA's cuda-samples (GitHub, or the folder that $CUDA_SAMPLES names)
#   run.sh all
#
# Downloads go to target/programs and stay there. The versions are pinned: other versions may ask for other functions. The
# last two use the CUDA runtime, and are compiled by the nvcc that $NVCC names, or that of `cargo xtask toolkit`, or the
# one on the path, with `-cudart shared` and the runtime in the folder cudart. Options of the emulator pass through.
set -uo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=$root/target/programs
here=$root/crates/emulator/programs
mkdir -p "$work/lib" "$work/logs"

cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p kiln-emulator || exit 1
cp --remove-destination "$root/target/release/libkiln_emulator.so" "$work/lib/libcuda.so.1"
ln -sf libcuda.so.1 "$work/lib/libcuda.so"
export LD_LIBRARY_PATH=$work/lib
failed=0

# report NAME STATUS [TEXT]
report() {
    printf '%-44s %-7s %s\n' "$1" "$2" "${3:-}"
    [ "$2" = passed ] || failed=1
}

# program NAME COMMAND...: one program, which fails by its exit status or by its output
program() {
    local name=$1 log
    shift
    log=$work/logs/${name//[ \/]/-}.log
    if timeout 900 "$@" < /dev/null > "$log" 2>&1 && ! grep -q FAILED "$log"; then report "$name" passed; else
        report "$name" FAILED "$(grep -m1 -E 'kiln-emulator|rror|ismatch|FAIL' "$log" | cut -c1-100)"
    fi
}

# finds NAME TEXT COMMAND...: one program with a mistake of its own, which the emulator has to report
finds() {
    local name=$1 text=$2 log
    shift 2
    log=$work/logs/${name//[ \/]/-}.log
    if timeout 900 "$@" < /dev/null > "$log" 2>&1 || ! grep -q "kiln-emulator: $text" "$log"; then
        report "$name" FAILED "without the finding of its mistake: $text"
    else
        report "$name" passed "its own mistake is found: $text"
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
    python numba numba==0.68.1 numba-cuda==0.30.4 cuda-bindings==13.5.0 cuda-core==1.2.2 filecheck numpy pytest \
        nvidia-cuda-nvrtc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 || return
    export NUMBA_CUDA_DRIVER=$work/lib/libcuda.so.1 NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=0
    local test
    for test in doc_examples.test_vecadd doc_examples.test_reduction cudapy.test_reduction cudapy.test_atomics \
        cudapy.test_warp_ops cudapy.test_sm cudapy.test_intrinsics cudapy.test_math cudapy.test_print cudapy.test_vectorize; do
        program "numba $test" "$work/numba/bin/python" -m numba.runtests "numba.cuda.tests.$test"
    done
    # This test is a function for pytest, which `runtests` does not find.
    program "numba doc_examples.test_matmul" "$work/numba/bin/python" -c \
        'from numba.cuda.tests.doc_examples.test_matmul import test_matmul; test_matmul()'
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

# checkout FOLDER URL COMMIT: one commit of a repository
checkout() {
    [ -e "$1/.git/done" ] && return
    rm -rf "$1"
    git init --quiet "$1" && git -C "$1" fetch --quiet --depth 1 "$2" "$3" &&
        git -C "$1" checkout --quiet FETCH_HEAD && touch "$1/.git/done"
}

# Finds nvcc, builds the runtime and checks it, once.
runtime() {
    [ -n "${nvcc:-}" ] && return
    nvcc=${NVCC:-$(ls "$root"/.venv-cuda/lib/python*/site-packages/nvidia/cu13/bin/nvcc 2> /dev/null || command -v nvcc)}
    [ -n "$nvcc" ] || { report "nvcc" FAILED "is not there: cargo xtask toolkit" && return 1; }
    local include
    include=$(dirname "$nvcc")/../include
    g++ -std=c++20 -O1 -shared -fPIC -I "$include" -o "$work/lib/new" "$here"/cudart/*.cpp -L "$work/lib" \
        -lcuda -Wl,-soname,libcudart.so.13 -Wl,--no-undefined -Wl,--version-script="$here/cudart/exports.map" &&
        mv "$work/lib/new" "$work/lib/libcudart.so.13" && ln -sf libcudart.so.13 "$work/lib/libcudart.so" || return
    compile "cudart" "$work/check" "$here/cudart/check.cu" && program "cudart" "$work/check"
}

# compile NAME OUTPUT ARGUMENTS...: a program that uses the runtime
compile() {
    local name=$1 log=$work/logs/${1//[ \/]/-}-build.log
    shift
    "$nvcc" -std=c++17 -lineinfo -cudart shared -cudadevrt none -gencode arch=compute_80,code=compute_80 -L "$work/lib" \
        -o "$@" > "$log" 2>&1 && return
    report "$name" FAILED "$(grep -m1 -E 'error|undefined' "$log" | cut -c1-100)"
    return 1
}

llmc() {
    local from=${LLMC:-$work/llm.c} to=$work/llmc
    [ -n "${LLMC:-}" ] || checkout "$from" https://github.com/karpathy/llm.c f1e2ace651495b74ae22d45d1723443fd00ecd3a || return
    runtime || return
    rm -rf "$to" && mkdir -p "$to" && cp "$from"/dev/cuda/*.cu "$from/dev/cuda/common.h" "$to" || return
    # The sizes are those of a training run on a GPU, and each kernel is timed up to 2000 times: make sizes smaller, and run once.
    sed -i -E 's/^( *(int|int64_t) B =) [0-9]+;/\1 2;/; s/^( *(int|int64_t) T =) 1024;/\1 64;/
        s/^( *int C =) (768|1600);/\1 384;/; s/^( *int NH =) 12;/\1 6;/
        s/^( *(int|int64_t) V =) 50257;/\1 1031;/; s/^( *int L =) 12;/\1 1;/; s/num_parameters = 1048576;/num_parameters = 10007;/
        s/repeat_times = [0-9]+;/repeat_times = 1;/' "$to"/*.cu
    sed -i -E 's/^( *int OC =) 768 \* 4;/\1 512;/' "$to"/matmul_{backward,forward}.cu
    # With smaller blocks its kernel 8 shuffles with lanes that take no part, and 9 writes past the end of its buffer.
    sed -i -E 's/\{32, 64, 128, 256,/{256,/' "$to/matmul_backward_bias.cu"
    # The kernels of layernorm_backward from the eighth on need multiples of 256.
    sed -i -E 's/^( *int C =) 384;/\1 768;/' "$to/layernorm_backward.cu"
    # The tiles of trimat_forward need rows of 128.
    sed -i -E 's/^( *int B =) 2;/\1 1;/; s/^( *int T =) 64;/\1 128;/; s/^( *int C =) 384;/\1 128;/; s/^( *int NH =) 6;/\1 2;/' \
        "$to/trimat_forward.cu"
    # A NaN has to count as a mismatch.
    sed -i 's/if (fabs(cpu_reference\[i\] - (T)out_gpu\[i\]) > t_eff)/if (!(fabs(cpu_reference[i] - (T)out_gpu[i]) <= t_eff))/' \
        "$to/common.h"
    # The attention kernels read fresh memory that nothing has written, and rely on zeros.
    sed -i -E 's/^( *cudaCheck\(cudaMalloc\(&(\w+), (.*)\)\);)$/\1 cudaCheck(cudaMemset(\2, 0, \3));/' "$to"/attention_*.cu
    # Missing are kernels for floats of 32 bits alone, one for cuBLASLt (matmul_forward 3), and one that refuses devices of so
    # many multiprocessors (global_norm 4).
    local file kernel kernels
    while read -r file kernels; do
        compile "llm.c $file" "$to/$file" -O3 --use_fast_math -Xcompiler -fopenmp -I "$here/llmc" "$to/$file.cu" || continue
        for kernel in $kernels; do program "llm.c $file $kernel" "$to/$file" "$kernel"; done
    done << EOF
adamw 1 2
attention_backward 1 2 3 4 5 7
attention_forward 1 2 3 4 5 6
classifier_fused 1 2 3 4 5
crossentropy_forward 1
crossentropy_softmax_backward 1
encoder_backward 1 2
encoder_forward 1 2 3
fused_residual_forward 1 3 4 5 6
gelu_backward 1 2
gelu_forward 1 2
global_norm 1 2 3
layernorm_backward 2 3 4 5 6 7 8 9
layernorm_forward 1 2 3 4 5 6
matmul_backward 1
matmul_backward_bias 1 2 3 4 7 8 9
matmul_forward 1 2 4
permute 0
residual_forward 1 2
softmax_forward 1 2 3 5 6 7 8
trimat_forward 0 1 2 3 4
EOF
    # The mistakes, in this order: a row is read in whole blocks of 256, past the last row's end; `idx > N` lets one thread too
    # many in; the flag of the last block lies behind the shared memory of a block of 32; a buffer is written again while other
    # warps read it, since a barrier is missing.
    finds "llm.c attention_backward 6" "out-of-bounds read" "$to/attention_backward" 6
    finds "llm.c fused_residual_forward 2" "out-of-bounds read" "$to/fused_residual_forward" 2
    finds "llm.c layernorm_backward 10" "out-of-bounds write" "$to/layernorm_backward" 10
    KILN_EMULATOR_CHECK=1 finds "llm.c attention_backward 8" "race" "$to/attention_backward" 8
    KILN_EMULATOR_CHECK=1 finds "llm.c softmax_forward 4" "race" "$to/softmax_forward" 4
}

samples() {
    local from=${CUDA_SAMPLES:-$work/cuda-samples} to=$work/samples folder changes arguments name
    [ -n "${CUDA_SAMPLES:-}" ] ||
        checkout "$from" https://github.com/NVIDIA/cuda-samples c94ff366aed18c797b8a85dfaac7817b0228b420 || return
    runtime || return
    shopt -s nullglob
    rm -rf "$to" && mkdir -p "$to"
    # Folder, a sed script that makes sizes and repetitions smaller, arguments.
    while IFS='|' read -r folder changes arguments; do
        name=${folder##*/}
        cp -r "$from/Samples/$folder" "$to/$name" || continue
        # The toolkit may lack the profiler's header.
        sed -i -E "/cuda_profiler_api|cudaProfilerSt/d; $changes" "$to/$name"/*.c*
        # shellcheck disable=SC2086
        compile "samples $name" "$to/$name/program" -O2 -I "$from/Common" "$to/$name"/*.{cu,cpp} &&
            program "samples $name" env -C "$to/$name" ./program $arguments
    done << 'EOF'
0_Introduction/asyncAPI|s/16 \* 1024 \* 1024;/64 * 1024;/|
0_Introduction/fp16ScalarProduct||
0_Introduction/matrixMul|s/nIter = 300/nIter = 1/|-wA=128 -hA=64 -wB=64 -hB=128
0_Introduction/mergeSort|s/4 \* 1048576/65536/|
0_Introduction/simpleAssert||
0_Introduction/simpleAtomicIntrinsics||
0_Introduction/simpleCallback||
0_Introduction/simpleCooperativeGroups||
0_Introduction/simpleMultiCopy|s/1 << 22/1 << 14/; s/nreps( *)= 10;/nreps\1= 4;/|
0_Introduction/simpleOccupancy||
0_Introduction/simpleStreams|s/16 \* 1024 \* 1024/64 * 1024/; s/nreps( *)= 10;/nreps\1= 1;/|
0_Introduction/simpleTemplates||
0_Introduction/simpleVoteIntrinsics||
0_Introduction/simpleZeroCopy||
0_Introduction/template||
0_Introduction/vectorAdd||
2_Concepts_and_Techniques/convolutionSeparable|s/= 3072/= 256/; s/iterations = 16/iterations = 1/|
2_Concepts_and_Techniques/histogram|s/64 \* 1048576/1048576/; s/= 16;/= 1;/|
2_Concepts_and_Techniques/inlinePTX||
2_Concepts_and_Techniques/reduction|s/testIterations = 100/testIterations = 1/|--n=65536
2_Concepts_and_Techniques/reductionMultiBlockCG|s/1 << 25/1 << 16/; s/testIterations = 100/testIterations = 1/|
2_Concepts_and_Techniques/scalarProd|s/VECTOR_N = 256/VECTOR_N = 16/|
2_Concepts_and_Techniques/scan|s/13 \* 1048576 \/ 2/262144/|
2_Concepts_and_Techniques/shfl_scan||
2_Concepts_and_Techniques/sortingNetworks|s/= 1048576/= 8192/|
2_Concepts_and_Techniques/streamOrderedAllocation|s/1048576/16384/; s/MAX_ITER 20/MAX_ITER 4/|
2_Concepts_and_Techniques/threadFenceReduction|s/testIterations = 100/testIterations = 1/|--n=65536
3_CUDA_Features/StreamPriorities|s/TOTAL_SIZE +256U \* 1024U \* 1024U/TOTAL_SIZE 1024U * 1024U/|
3_CUDA_Features/binaryPartitionCG||
3_CUDA_Features/newdelete||
3_CUDA_Features/simpleCudaGraphs|s/1 << 24/1 << 16/|
3_CUDA_Features/warpAggregatedAtomicsCG|s/10000000/100000/|
5_Domain_Specific/BlackScholes|s/= 4000000/= 20000/; s/= 512;/= 1;/|
5_Domain_Specific/SobolQRNG||1000 10
5_Domain_Specific/fastWalshTransform|s/= 23;/= 12;/|
5_Domain_Specific/quasirandomGenerator|s/= 1048576/= 16384/|
6_Performance/transpose|s/REPS 100/REPS 1/|-dimX=128 -dimY=128
EOF
}

case ${1:-all} in
    numba | cudarc | triton | runtime | llmc | samples) "$1" ;;
    all)
        numba
        cudarc
        triton
        runtime
        llmc
        samples
        ;;
    *)
        sed -n '2,14s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
esac
exit $failed
