#!/usr/bin/env bash
# Runs everything that a machine with an NVIDIA GPU can show, and writes it to a folder.
#
#   ./run.sh                    all of it: conformance, sanitizer, benches and whole nets beside PyTorch, a training run
#   ./run.sh --quick            fewer and shorter samples, no sanitizer
#   ./run.sh --out FOLDER       where the results go (default: results)
#   ./run.sh --filter WORD      benches with WORD in their id, such as gemm/f32 or sum/; may be given again
#   ./run.sh --max-flops N      no bench of more floating-point operations (Kiln's; PyTorch's are chosen by --filter)
#   ./run.sh --max-bytes N      no bench that moves more bytes (Kiln's)
#   ./run.sh --compile          measure nets with torch.compile too, which takes up to a minute a net
#   ./run.sh --cases N          at most N cases of each property of the conformance tests
#   ./run.sh --train 'WORDS'    options of `kiln train mnist-cnn --device cuda`, such as '--max-steps 100'
#   ./run.sh conformance bench  some of it: devices device conformance sanitizer bench nets train
#
# Needs an NVIDIA driver; compute-sanitizer and a Python with PyTorch are used where they are. KILN_CUDA_DRIVER names
# another driver: with the emulated one, `--quick --cases 2 --max-flops 1000000 --max-bytes 1000000 --train '--synthetic 40'`
# is a run of minutes that shows whether the folder is whole. Exit code: 0 when every part that ran is well, 1 otherwise,
# 2 when the command line is wrong; summary.json says which part was not, and why one was left out.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
known="devices device conformance sanitizer bench nets train"
out=results quick=() compile=() filters=() limits=() train=() parts=() status=0
wrong() { echo "run.sh: $1; see --help" >&2 && exit 2; }
while [ $# -gt 0 ]; do
    case "$1" in
    --out | --filter | --max-flops | --max-bytes | --cases | --train) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
    esac
    case "$1" in
    --quick) quick=(--quick) ;;
    --compile) compile=(--compile) ;;
    --out) out="$2" && shift ;;
    --filter) filters+=("$2") && shift ;;
    --max-flops | --max-bytes) limits+=("$1" "$2") && shift ;;
    --cases) export PROPTEST_CASES="$2" && shift ;;
    --train) read -r -a train <<<"$2" && shift ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    -*) wrong "unknown option $1" ;;
    *) if [[ " $known " == *" $1 "* ]]; then parts+=("$1"); else wrong "no part is called $1"; fi ;;
    esac
    shift
done
mkdir -p "$out" || exit 1
out="$(cd "$out" && pwd)"
# The tests of the conformance binary run on an emulated driver unless another is named.
export KILN_CUDA_DRIVER="${KILN_CUDA_DRIVER:-libcuda.so.1}"
: >"$out/summary.txt"
: >"$out/skipped.txt"

wants() { [ ${#parts[@]} -eq 0 ] || [[ " ${parts[*]} " == *" $1 "* ]]; }

# part NAME FILE COMMAND…: runs it with its output in FILE, and notes how it ended and how long it took. Lines of JSON get
# a file of their own; what is said beside them goes to the terminal.
part() {
    local name="$1" file="$out/$2" start=$SECONDS code
    shift 2
    echo "== $name: $*"
    case "$file" in
    *.jsonl) "$@" >"$file" ;;
    *) "$@" >"$file" 2>&1 ;;
    esac
    code=$?
    grep '^skipped' "$file"
    tail -n 4 "$file"
    echo "$name $code $((SECONDS - start))" >>"$out/summary.txt"
    [ $code -eq 0 ] || status=1
}

# skip NAME WHY: notes that a part was left out.
skip() {
    echo "== $1: left out, $2"
    printf '%s\t%s\n' "$1" "$2" >>"$out/skipped.txt"
}

# The text as a string of JSON.
quoted() { printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }

# Ends well where PyTorch can be measured; else its last line says why not.
sees_gpu() {
    "$python" - 2>&1 <<'END'
import sys
try:
    import numpy, torch
except ImportError as e:
    sys.exit(f"{sys.executable} has no PyTorch to measure: {e}")
if not torch.cuda.is_available():
    sys.exit(f"PyTorch {torch.__version__} sees no CUDA device")
END
}

python="${PYTHON:-}"
[ -n "$python" ] || { [ -x "$here/.venv-peers/bin/python" ] && python="$here/.venv-peers/bin/python"; } || python=python3

wants devices && part devices devices.txt "$here/bin/kiln" devices
if wants device; then
    for tests in memory errors peers; do
        part "device-$tests" "device-$tests.txt" "$here/bin/device-$tests"
    done
fi
wants conformance && part conformance conformance.txt "$here/bin/conformance"
if wants sanitizer; then
    if [ ${#quick[@]} -gt 0 ]; then
        skip sanitizer "--quick has none"
    elif command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck initcheck synccheck; do
            part "sanitizer-$tool" "sanitizer-$tool.txt" env KILN_SANITIZER=1 PROPTEST_CASES=4 timeout 900 \
                compute-sanitizer --tool "$tool" --error-exitcode 1 "$here/bin/conformance" --test-threads 1
        done
    else
        skip sanitizer "compute-sanitizer is not on PATH"
    fi
fi
# peer NAME FILE SCRIPT…: measures PyTorch with one of the scripts, or notes why not.
peer() {
    local name="$1" file="$2" why
    shift 2
    if why="$(sees_gpu)"; then
        part "$name" "$file" "$python" "$here/peers/$@" "${quick[@]}" "${filters[@]}"
    else
        why="${why##*$'\n'}"
        skip "$name" "$why"
        echo "{ \"peer\": \"torch\", \"skipped\": $(quoted "$why") }" >"$out/$file"
    fi
}

# Trains whole nets for two epochs of made-up samples, and prints the time of a step in the second, data and all. Behind the samples of a row
# stand more options of `kiln train`.
nets() {
    local net precision batch samples more id folder rate filter chosen
    "$here/bin/kiln-cuda-bench" about || return 1
    while read -r net precision batch samples more; do
        id="train/$precision/$net-b$batch" chosen=$((${#filters[@]} == 0))
        for filter in "${filters[@]}"; do [[ "/$id" == *[/-]"$filter"* ]] && chosen=1; done
        [ $chosen -eq 1 ] || continue
        folder="$out/nets/$net-$precision"
        rm -rf "$folder"
        "$here/bin/kiln" train "$net" --device cuda --plain --epochs 2 --batch "$batch" --precision "$precision" \
            --synthetic "$samples" $more --out "$folder" >>"$out/nets.txt" 2>&1 || return 1
        rate="$(sed -n '2s/.*"samples_per_second":\([0-9.e+]*\).*/\1/p' "$folder/history.jsonl")"
        awk -v id="$id" -v batch="$batch" -v rate="$rate" \
            'BEGIN { printf "{\"id\":\"%s\",\"variant\":\"kiln train\",\"seconds\":%.9f,\"images\":%d}\n", id, batch / rate, batch }' || return 1
        rm -f "$folder"/*.safetensors
    done <<'END'
lenet f32 4 40000
mnist-cnn f32 128 128000
vgg11 f32 128 12800
vgg11 bf16 128 12800
resnet18 f32 128 12800
resnet18 tf32 128 12800
resnet18 bf16 128 12800
resnet50 bf16 256 5120
bert-base bf16 32 640
gpt2 bf16 64 640
yolo-s-640 bf16 16 640 --workers 16
dcgan bf16 64 12800
stylegan2 bf16 32 6400
END
}

if wants bench; then
    # The log of launches gives each line its modelled time.
    KILN_LAUNCH_LOG="$out/launches.jsonl" \
        part bench-kiln kiln.jsonl "$here/bin/kiln-cuda-bench" run "${quick[@]}" "${limits[@]}" "${filters[@]}"
    peer bench-torch torch.jsonl torch_cuda.py
    part report report.txt "$here/bin/kiln-cuda-bench" report "$out/kiln.jsonl" "$out/torch.jsonl" \
        --out "$out/results.json" --date "$(date -u +%F)"
fi
if wants nets; then
    : >"$out/nets.txt"
    part nets-kiln nets-kiln.jsonl nets
    peer nets-torch nets-torch.jsonl torch_cuda_nets.py "${compile[@]}"
    part nets-report nets-report.txt "$here/bin/kiln-cuda-bench" report "$out/nets-kiln.jsonl" "$out/nets-torch.jsonl" \
        --out "$out/nets.json" --date "$(date -u +%F)"
fi
wants train && part train train.txt "$here/bin/kiln" train mnist-cnn --device cuda "${train[@]}" \
    --out "$out/mnist-cnn-$(date -u +%Y%m%d-%H%M%S)"

# Lines as the entries of a list.
listed() { sed -e '$!s/$/,/' -e 's/^/    /'; }
{
    echo '{'
    echo "  \"date\": \"$(date -u +%FT%TZ)\","
    echo "  \"card\": $(quoted "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"),"
    echo "  \"driver\": $(quoted "$KILN_CUDA_DRIVER"),"
    echo '  "parts": ['
    while read -r name code seconds; do
        echo "{ \"part\": \"$name\", \"exit\": $code, \"seconds\": $seconds }"
    done <"$out/summary.txt" | listed
    echo '  ],'
    echo '  "skipped": ['
    while IFS=$'\t' read -r name why; do
        echo "{ \"part\": \"$name\", \"why\": $(quoted "$why") }"
    done <"$out/skipped.txt" | listed
    echo '  ]'
    echo '}'
} >"$out/summary.json"
cat "$out/summary.json"
exit $status
