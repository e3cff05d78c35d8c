#!/usr/bin/env bash
# Breaks one invariant after another, as the patches beside this file say, and runs the test that each of them
# names: it has to pass before, and to fail after.
# Usage: tests/teeth/run.sh [REGEX]     only the patches whose name matches
#
# A patch that no longer applies is a failure too: make it anew. What breaks by it, and what notices, is said in its
# first lines. The tree is copied; nothing here is touched. What it depends on is built for both.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
log="$CARGO_TARGET_DIR/teeth/log"
tree="$CARGO_TARGET_DIR/teeth/tree"
# A broken test may wait for ever.
LIMIT="${LIMIT:-120}"

mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --preserve=timestamps -t "$tree"

patches=$(find tests/teeth -name '*.patch' | sort | grep -E "${1:-.}")
# Newer than what a run before this one has built of them, broken.
sed -n 's|^+++ b/||p' tests/teeth/*.patch | sort -u | (cd "$tree" && xargs touch)
covered=$(head -qn1 $patches | sed -n 's/^\(I[0-9]*\) .*/\1/p' | sort -uV | tr '\n' ' ')

run() { # the words after "Noticed by:"
    # What is compiled is told apart from what is run: a patch that breaks the build proves nothing.
    # shellcheck disable=SC2086
    set -- $1
    local words=("$@")
    local last=$((${#words[@]} - 1))
    (
        cd "$tree"
        cargo test --quiet --no-run "${words[@]:0:last}" >"$log" 2>&1 || exit 101
        timeout "$LIMIT" cargo test --quiet "${words[@]:0:last}" -- --exact "${words[last]}" >"$log" 2>&1 || exit 1
        grep -q '1 passed' "$log" || exit 102
    )
}

tests=$(sed -n 's/^Noticed by: //p' $patches | sort -u)
while read -r test; do
    status=0
    run "$test" || status=$?
    if [ "$status" != 0 ]; then
        echo "FAIL $test does not pass as it is, or is not there ($status)"
        tail -20 "$log"
        exit 1
    fi
done <<<"$tests"

surprises=0
for patch in $patches; do
    name=$(basename "$patch" .patch)
    what=$(sed -n 's/^Broken: \(.*\)\.$/\1/p' "$patch")
    test=$(sed -n 's/^Noticed by: //p' "$patch")
    if ! patch --quiet --strip=1 --directory="$tree" <"$patch" >"$log" 2>&1; then
        echo "FAIL $name does not apply"
        exit 1
    fi
    status=0
    run "$test" || status=$?
    case $status in
    1) echo "PASS $name: $what; noticed by $test" ;;
    101)
        echo "FAIL $name does not build"
        tail -20 "$log"
        surprises=1
        ;;
    *)
        echo "FAIL $name: $what; NOT noticed by $test"
        surprises=1
        ;;
    esac
    patch --quiet --strip=1 --reverse --directory="$tree" <"$patch"
done
echo "Invariants broken: $covered"
if [ -z "${1:-}" ] && [ "$covered" != "I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 I11 " ]; then
    echo 'FAIL some invariant is broken by no patch'
    surprises=1
fi
exit "$surprises"
