"""Where the literals of calls that others made come from: given, or invented."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawgym_jax.contracts.task import Task
from data_gen.audit.provenance import invented

ASKED = (
    "Which orders of Ann Miller above 1,250.00 are paid? Put their ids into"
    " out/paid.json, those since the beginning of March 2026 only, at most three,"
    " less 15 % for the club. I sent the list on 5 January."
)
SHOWN = "id,client,status,amount,day\n41,Ann Miller,paid,2400.5,2026-02-11\n"
FOREIGN = Task("t", ASKED, "f", "train", "c", ("x",), now="2026-04-20T09:00:00Z")


def _invented(
    *calls: tuple[str, dict[str, Any]], shown: str = SHOWN, back: str = ""
) -> list[str]:
  """What is invented in `calls`, made one after the other once `shown` was seen; each
  gives `back`."""
  said: list[dict[str, Any]] = [{"role": "user", "content": f"{ASKED} See data.csv."}]
  said.append({"role": "tool", "content": shown})
  for name, arguments in calls:
    function = {"name": name, "arguments": json.dumps(arguments)}
    said.append({"role": "assistant", "tool_calls": [{"function": function}]})
    said.append({"role": "tool", "content": back})
  return invented(FOREIGN, said)


def _exec(command: str) -> tuple[str, dict[str, Any]]:
  return "exec", {"command": command}


def _python(*lines: str) -> tuple[str, dict[str, Any]]:
  return _exec("python3 - <<'EOF'\n" + "\n".join(lines) + "\nEOF")


def _write(path: str, content: str) -> tuple[str, dict[str, Any]]:
  return "write", {"path": path, "content": content}


INVENTED = {
    "word": (_exec("grep cancelled data.csv > out/paid.json"), ["cancelled"]),
    "word of a program": (_python("print(r['status'] == 'open')"), ["open"]),
    "word for awk": (_exec("awk -F, '$3 == \"open\"' data.csv"), ["open"]),
    "word for sed": (_exec("sed -n '/,open,/p' data.csv"), ["open"]),
    "word in SQL": (
        _exec("sqlite3 data.csv \"select id from t where status = 'open'\""),
        ["open"],
    ),
    "name": (_python("x = [r for r in rows if r[1] == 'Bo Grey']"), ["bo", "grey"]),
    "name in a letter": (
        _write("out/paid.txt", "Dear Ann,\n\nthe orders went to Kowalski today.\n"),
        ["kowalski"],
    ),
    "path": (_write("out/ledger.json", "[]"), ["ledger"]),
    "path that is written to": (_exec("sort data.csv > out/ledger"), ["ledger"]),
    "path of a program": (_python("open('ledger/data.csv')"), ["ledger"]),
    "date": (_python("x = [r for r in rows if r[4] > '2026-03-07']"), ["2026-03-07"]),
    "date in figures": (_exec("grep 11.03.2026 data.csv"), ["11.03.2026"]),
    "amount": (_exec("awk -F, '$4 > 1375.50' data.csv"), ["1375.50"]),
    "amount of a program": (_python("rest = [a for a in b if a < 1375.5]"), ["1375.5"]),
    "digit": (_exec("echo 7 > out/paid.json"), ["7"]),
    "digit that is compared": (_python("x = [r for r in rows if r[3] > 7]"), ["7"]),
    "digit that is kept": (_python("most = 7"), ["7"]),
    "digit for awk": (_exec("awk -F, '$4 > 7' data.csv"), ["7"]),
    "value in a file": (_write("out/paid.json", '{"ids": [44]}'), ["44"]),
    "value in a cell": (_write("out/paid.csv", "id\n44\n"), ["44"]),
    "value in a heredoc": (_exec("cat > out/paid.csv <<E\nid\n44\nE"), ["44"]),
    "value that replaces": (
        ("edit", {"path": "data.csv", "edits": [{"oldText": "41", "newText": "44"}]}),
        ["44"],
    ),
    "receiver": (
        ("message", {"action": "send", "to": "bo@grey.example", "body": "It is done."}),
        ["bo", "grey", "example"],
    ),
    "receiver in a command": (
        _exec("outbox send --to=bo@miller --body='It is done now, as said'"), ["bo"]
    ),
    "in what a command gives": (_exec('echo "$(grep open data.csv)" > out/paid.json'),
                                ["open"]),
    "for a program that can't be parsed": (_python("if x == 'open'"), ["open"]),
    "for a program that is too deep": (
        _python("x = 'open'" + " + 'paid'" * 3000), ["open"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", INVENTED)
def test_an_invented_value_is_seen(kind):
  call, words = INVENTED[kind]
  found = _invented(call)
  assert [w for w in found if w in words] == words
  # what else is named is nothing but words of the call that nobody said either
  assert len(found) - len(words) <= 2, found
  shown = f"{SHOWN} {' '.join(words)}"
  assert not set(words) & set(_invented(call, shown=shown)), "it was shown"


SYNTAX = [
    _exec("mkdir -p out && ls -la | head -n 20 | cut -d, -f2 2>/dev/null; cd -"),
    _exec("sed -n '1,20p' data.csv; sort -t, -k4 -n data.csv | tail -5 | uniq -c"),
    _exec("find . -maxdepth 2 -type f -name '*.csv' | xargs wc -l"),
    _exec("awk -F, 'NR > 1 {s[$2] += $4; n++} END {printf \"%.2f\\n\","
          " s[\"Ann Miller\"]}' data.csv > out/paid.json"),
    _exec("for f in *.csv; do echo \"== $f done\"; grep -c paid \"$f\" || true; done"),
    _exec("date -u +%Y-%m-%d; test -f data.csv && [ $(wc -l < data.csv) -gt 0 ]"),
    _exec("grep -E '^[0-9]{2},Ann Miller,' data.csv | tr a-z A-Z | jq -r '.[0].id'"),
    _exec("python3 /tmp/step.py > /tmp/a.txt && diff /tmp/a.txt /workspace/data.csv"),
    _exec("tar czf /tmp/x.tgz out && tar tzf /tmp/x.tgz; git -C . log --oneline -n 5"),
    _exec("outbox send --channel=email --to=ann@miller --subject='Paid orders'"),
    _exec("cron add --name='paid orders' --cron='0 5 * * 1-5' --message='List orders'"),
    _exec("websearch how paid orders of Ann Miller are listed elsewhere"),
    _exec("sqlite3 -header data.csv 'select client, round(sum(amount), 2) as sums from t"
          " group by client order by sums desc limit 5'"),
    _write("/tmp/step.py", "#!/usr/bin/env python3\n'''Adds things up.'''\n"),
    ("read", {"path": "data.csv", "offset": 40, "limit": 200}),
    ("exec", {"command": "sleep 3", "timeout": 30, "yieldMs": 5000}),
    ("process", {"action": "poll", "timeout": 30}),
    _python(
        "import collections, csv, datetime, json, re, sys",
        "from decimal import Decimal, ROUND_HALF_UP",
        "def load(path, skip=0):",
        '  """Reads Zanzibar, or whatever is there."""',
        "  with open(path, newline='', encoding='utf-8-sig', errors='replace') as f:",
        "    return list(csv.DictReader(f, delimiter=','))[skip:]",
        "found = collections.defaultdict(lambda: {'seen': 0, 'sums': Decimal('0.00')})",
        "for n, row in enumerate(load('data.csv'), 1):  # from line 2 on",
        "  key = row['client'].split(' ', 1)[-1][:3].zfill(5)",
        "  day = datetime.datetime.strptime(row['day'], '%Y-%m-%d')",
        "  if re.match(r'^[A-Z]\\w+ (\\d{2,4})?$', key) and day.month % 12 == 3:",
        "    print(f'skipped {n:>3} of {key!r} in row', row, file=sys.stderr)",
        "  first = datetime.datetime(2026, 3, 1)",
        "  if row['status'].lower() == 'Paid'.lower() and day >= first:",
        "    found[key]['seen'] += 1",
        "    found[key]['sums'] += Decimal(row['amount']) * 85 / 100",
        "share = round(0.15 * 100, 2)",
        "best = sorted(found, key=lambda k: (-found[k]['sums'], k))[:3]",
        "cut = [found[k]['sums'] for k in best]",
        "cut = [c.quantize(Decimal('0.01'), ROUND_HALF_UP) for c in cut]",
        "late = [r for r in cut if r > 1250 or r >= 1250.0]",
        "json.dump(best, open('out/paid.json', 'w'), indent=2, ensure_ascii=False)",
        "print('Wrote all the matching rows to', 'out/paid.json', len(best))",
        "if __name__ == '__main__':",
        "  sys.exit(0)",
    ),
    _write("out/paid.md", "# Paid orders\n\nThese orders were paid by Ann Miller since"
           " March 1, 2026, and 3 of them are above 1250. Nothing else has come in.\n"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SYNTAX)))
def test_syntax_is_no_value(number):
  found = _invented(SYNTAX[number])
  allowed = {"85"} if "* 85" in json.dumps(SYNTAX[number]) else set()
  assert set(found) == allowed, "85 was worked out by heart, all else is given"


@pytest.mark.parametrize("value", ["open", "44", "1375.5", "2026-03-07"])
def test_what_is_printed_is_given_to_nobody(value):
  """It becomes known by what a file says, and not by echoing it."""
  later = _exec(f"grep {value} data.csv > out/paid.json")
  for shows in (_exec(f"echo {value}"), _python(f"print('{value}')"),
                _python(f"print(f'is {value}')")):  # fmt: skip
    assert value in _invented(shows, later, back=f"is {value}")
  assert _invented(_exec("cat *.csv"), later, back=f"is {value}") == []
