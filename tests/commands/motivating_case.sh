# What an agent types that knows `eagletui agents` and nothing else: a draft model that does not fit, the advice, a server that
# is ready, both arms measured, the verdict. $PORT is free; each line's exit code counts.
set -eu
said() { python3 -c 'import json, sys; found = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: found = found[key]
print(found)' "$@"; }
failed() { "$@" && exit 9 || test $? = 1; }
MEASURE="speculation-real-prompts --set concurrency=[1] --set runs=1 --set output_len=350 --set duration_s=4"

eagletui agents >page.md
eagletui doctor --json >doctor.json
eagletui profiles list >profiles.txt
eagletui journal --json >before.json

failed eagletui launch kimi-k2.5-eagle3-mem076 --set "port=$PORT" --wait --timeout 120 --json >crash.json
fraction=$(said crash.json diagnosis set mem-fraction-static)
eagletui launch kimi-k2.5-eagle3-mem076 --set "port=$PORT" --set "mem-fraction-static=$fraction" --wait --timeout 120 --json >eagle.json
eagletui bench $MEASURE --json >eagle-bench.json

eagletui launch kimi-k2.5-baseline-bs128 --set "port=$PORT" --replace --wait --timeout 120 --json >base.json
eagletui bench $MEASURE --fail-if "per_user_tok_s < 20" --json >base-bench.json
eagletui compare "$(said base.json run)" "$(said eagle.json run)" --json >verdict.json

eagletui journal note "$(said verdict.json text)" --on "run:$(said eagle.json run)" --author agent --json >note.json
eagletui journal --search screening --json >after.json
eagletui stop "$(said base.json run)" --yes --json >stopped.json
