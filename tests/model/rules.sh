#!/bin/bash
# rules.sh -- each rule that README.md defines stands at a step of the code, and no other rule is named there.
# A rule is defined by a line that starts with "- **NAME. "; the code names it as "rule 4", "rules 9, 10",
# "rules 2 to 6".  One line for what is amiss; nonzero exit then.
here=$(cd "$(dirname "$0")" && pwd); src=${SRC:-$here/../../src}
defined=$(sed -n 's/^- \*\*\([0-9A-Z]\{1,2\}\)\. .*/\1/p' "${README:-$here/README.md}" | sort -u)
# A list may go on in the next line of a comment, so lines are joined.
cited=$(cd "$src" && find table engine wheel records.rs -name '*.rs' ! -path '*_models*' ! -name '*tests.rs' ! -name models.rs -print0 |
  xargs -0 cat | sed -E 's,^ *//[/!]? ?,,' | tr '\n' ' ' |
  grep -oE '\b[Rr]ules? ([0-9]{1,2}|[A-Z])\b((,| and| to|, and) ([0-9]{1,2}|[A-Z])\b)*' |
  awk '{ sub(/^[Rr]ules? /, ""); gsub(/,| and/, ""); n = split($0, w, " ")
         for (i = 1; i <= n; i++) if (w[i] == "to") { for (r = w[i-1] + 1; r < w[i+1]; r++) print r } else print w[i] }' | sort -u)
bad=0
for rule in $(comm -23 <(echo "$defined") <(echo "$cited")); do echo "FAIL rule $rule stands nowhere in the code"; bad=1; done
for rule in $(comm -13 <(echo "$defined") <(echo "$cited")); do echo "FAIL rule $rule is named in the code and not defined"; bad=1; done
[ -n "$defined" ] || { echo "FAIL no rules are defined"; bad=1; }
[ "$bad" = 0 ] && echo "PASS rules: $(echo "$defined" | wc -l) are defined and stand in the code"
exit "$bad"
