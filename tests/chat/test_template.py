"""Chat templates: Hugging Face's helpers, and bounds on a stranger's program."""

import json
import time

import pytest

from clawgym_jax.chat.template import ChatTemplate
from clawgym_jax.contracts.errors import RecordError, UserError

U = [{"role": "user", "content": "x"}]


def test_hugging_faces_helpers():
  source = """
  {%- for m in messages %}
    {%- if m.role == 'system' %}{% continue %}{% endif %}
    {%- generation %}{{ m | tojson }}{% endgeneration %}
    {%- break %}
  {%- endfor %}
  {%- set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}
  {{- ns.n ~ dict(a=1) | tojson(indent=1) ~ strftime_now('%Y') | length }}
  {{- bos_token ~ (nothing is defined) }}"""
  text = ChatTemplate(source).render(
      [{"role": "system", "content": ""}, {"role": "user", "content": "<é>", "name": None}],
      bos_token="<s>",
  )
  assert text == '{"role": "user", "content": "<é>"}2{\n "a": 1\n}4<s>False'


def test_arguments_are_objects_where_they_are_json_of_one():
  template = ChatTemplate(
      "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}\n{% endfor %}"
  )
  given = ['{"a":1.0, "é": [1]}', "[1]", "{torn", {"b": None}]
  calls = [{"function": {"name": "f", "arguments": a}} for a in given]
  text = template.render([{"role": "assistant", "content": None, "tool_calls": calls}])
  read = [json.loads(line) for line in text.splitlines()]
  assert read == [{"a": 1.0, "é": [1]}, "[1]", "{torn", {"b": None}]
  assert calls[0]["function"]["arguments"] == given[0]  # the message stays as it was


def test_a_second_source_is_for_tools():
  template = ChatTemplate("plain", "with {{ tools | length }}")
  assert template.render(U) == "plain"
  assert template.render(U, [{}, {}]) == "with 2"


def test_what_a_template_refuses_is_a_record_error():
  for source, why in (
      ("{{ raise_exception('no tools here') }}", "refuses.*no tools here"),
      ("{{ messages[0].nothing.more }}", "refuses.*nothing"),
      ("{{ messages[0].content + 1 }}", "can't lay out"),
  ):
    with pytest.raises(RecordError, match=why):
      ChatTemplate(source).render(U)
  with pytest.raises(RecordError, match="role"):
    ChatTemplate("").render([{"role": "<|im_end|>", "content": ""}])
  with pytest.raises(RecordError, match="only text"):
    ChatTemplate("").render([{"role": "user", "content": [{"type": "image"}]}])
  flat = {"name": "read", "arguments": {}}
  for message, why in (
      ("hello", "no object"),
      ({"role": "user", "content": ["hello"]}, "only text"),
      ({"role": "user", "content": [{"type": "text"}]}, "only text"),
      ({"role": "assistant", "tool_calls": flat}, "no list"),
      ({"role": "assistant", "tool_calls": [flat]}, "tool call is no .*'read'"),
  ):
    with pytest.raises(RecordError, match=why):
      ChatTemplate("").render([message])


AGAIN = (
    "{{% set l = range(50000) | list %}}{{% set s = 'a' * 500000 %}}"
    "{{% for i in range(99999) %}}{}{{% endfor %}}"
)
GROW = "{{% set ns = namespace(s='ab', l=[1]) %}}{{% for i in range(99) %}}{}{{% endfor %}}"
ENDLESS = {
  "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
  "deep loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
  "deep macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
  "wide macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
  "{{ f(90) }}",
  "~": GROW.format("{% set ns.s = ns.s ~ ns.s %}"),
  "+": GROW.format("{% set ns.s = ns.s + ns.s %}"),
  "list": GROW.format("{% set ns.l = ns.l + ns.l %}"),
  "replace": GROW.format("{% set ns.s = ns.s.replace('a', 'aa') %}"),
  "replace filter": GROW.format("{% set ns.s = ns.s | replace('a', 'aa') %}"),
  "join": GROW.format("{% set ns.s = ns.s.join([ns.s, ns.s]) %}"),
  "blocks": "{% set s %}0123456789{% endset %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 60,
  "nested lists": "{% set a = [1] %}" + "{% set a = [a, a, a, a] %}" * 60 + "{{ a }}",
  "nested namespaces": "{% set a = 1 %}" + "{% set a = namespace(a=a, b=a) %}" * 60 + "{{ a }}",
  "literal text": "{% for i in range(99999) %}" + "y" * 9999 + "{% endfor %}",
  "*": "{{ 'a' * 10000000000 }}",
  "list filter": AGAIN.format("{% set k = range(100000) | list %}"),
  "in a list": AGAIN.format("{% if 'a' in l %}{% endif %}"),
  "in a range": AGAIN.format("{% if 'a' in range(99999) %}{% endif %}"),
  "in a text": AGAIN.format("{% if 'ab' in s %}{% endif %}"),
  "in its own turns": AGAIN.format("{% for x in l %}{% if 'a' in loop %}{% endif %}{% endfor %}"),
  "test in": AGAIN.format("{% if 'a' is in l %}{% endif %}"),
  "filter with test in": AGAIN.format("{% set k = ['a'] | select('in', l) %}"),
  "count": AGAIN.format("{{ s.count('ab') }}"),
  "rfind": AGAIN.format("{{ s.rfind('ab' + s[9:]) }}"),
  "strip": AGAIN.format("{{ s.strip('b' + s) }}"),
  "trim": AGAIN.format("{{ s | trim('b' + s) }}"),
  "sort": AGAIN.format("{% set k = l | sort %}"),
  "length of a slice": AGAIN.format("{{ l[1:] | length + s[1:] | length }}"),
  "equal lists": AGAIN.format("{{ l == l + [] }}"),
  "filtered turns": AGAIN.format("{% for x in range(100000) if false %}{% endfor %}"),
  "much code a turn": AGAIN.format("{% set k = i %}" * 999),
  "much code in defaults": "{% macro f(k=[" + "j," * 999 + "]) %}{% endmacro %}"
  "{% for i in range(99999) %}{{ f() }}{% endfor %}",
  "long names": AGAIN.format("{% set k = i[s] %}"),
  "attr": AGAIN.format("{% set k = i | attr(s) %}"),
  "blocks of blocks": "".join(
      f"{{% block b{i} %}}{{{{ self.b{i + 1}() ~ self.b{i + 1}() }}}}"
      "{% endblock %}" for i in range(60)
  ) + "{% block b60 %}{% endblock %}",
  "many arguments": AGAIN.format("{{ cycler(*l).next() }}"),
  "long path": AGAIN.format("{% set k = s[:9999] | list | map(attribute='0.' * 99) | list %}"),
  "many fields": AGAIN.format("{{ ('{0}' * 9999).format(s) }}"),
  "many %": AGAIN.format("{{ ('%(a)s' * 9999) % {'a': s} }}"),
  "separators": AGAIN.format("{{ l | tojson(separators=(s, s)) }}"),
  "indent of levels": "{% set ns = namespace(l=[]) %}{% for i in range(300) %}"
  "{% set ns.l = [ns.l, 1] %}{% endfor %}{{ ns.l | tojson(indent='a' * 500000) }}",
  "indent of any lines": "{% set s = '\\r' * 500000 %}{{ s | indent(s, true, true) }}",
  "join by a list": AGAIN.format("{{ l | join(l) }}"),
  "replace by name": AGAIN.format("{{ s | replace(new=s, old='a') }}"),
  "numbers": "{% set ns = namespace(n=99999) %}{% for i in range(99) %}"
  "{% set ns.n = ns.n * ns.n %}{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_work_is_a_named_error(name):
  template = ChatTemplate(ENDLESS[name])
  began = time.thread_time()
  with pytest.raises(UserError, match="does not end or makes too much"):
    template.render(U)
  assert time.thread_time() - began < 3  # seconds of CPU; about 1 at most


FORBIDDEN = (
  "{% include '/etc/passwd' %}",
  "{% import 'os' as os %}",
  "{% from 'x' import y %}",
  "{% extends '/etc/passwd' %}",
  "{{ ''.__class__.__mro__ }}",
  "{{ messages.append(1) }}",
  "{{ namespace(__class__=1) }}",
  "{{ 10 ** 1000000000 }}",
  "{{ 'a'.ljust(1000000000) }}",
  "{{ (1).to_bytes(1000000000, 'big') }}",
  "{{ 'a' | center(1000000000) }}",
  "{{ 1.5 | round(1000000000) }}",
  "{{ messages | tojson(indent=100000000) }}",
  "{{ '%1000000000d' % 3 }}",
  "{{ '%*d' | format(1000000000, 3) }}",
  "{{ '{:1000000000}'.format(3) }}",
  "{{ strftime_now('%1000000000d') }}",
  "{% autoescape true %}{{ '&' | replace(';' | safe, 'x') }}{% endautoescape %}",
)  # fmt: skip


@pytest.mark.parametrize("source", FORBIDDEN)
def test_files_and_tricks_are_a_named_error(source):
  with pytest.raises(UserError, match="does what it must not"):
    ChatTemplate(source).render(U)


def test_what_is_no_template_is_a_named_error():
  for source in ("{% for %}", "{{ " + "(" * 9999, "{{ x | urlize }}", "{{ x | unique }}",
                 "x" * 2_000_000, "{{ " + "1" * 5000 + " }}"):
    with pytest.raises(UserError, match="can't be read|no template"):
      ChatTemplate(source)


def test_long_conversations_are_not_endless_work():
  template = ChatTemplate(
      "{% for m in messages %}{% for w in m.content.split(' ') %}{% endfor %}"
      "{{ m.content | trim ~ m.content.replace('a', 'b') }}{% endfor %}"
  )
  text = template.render([{"role": "user", "content": "abc " * 20}] * 3000)
  assert len(text) == 3000 * 159
  big = template.render([{"role": "user", "content": "a" * 5_000_000}])
  assert len(big) == 10_000_000
