"""What records are about: at least one topic for each scenario subcategory."""

from functools import cache

from data_gen.compose.setting import Setting
from data_gen.compose.topics import (
    analysis,
    automation,
    communication,
    domains,
    office,
    planning,
    retrieval,
    software,
    systems,
)
from data_gen.compose.topics.topic import Topic as Topic

TOPICS: dict[str, Topic] = {
    topic.name: topic
    for module in (
        office,
        communication,
        retrieval,
        analysis,
        automation,
        software,
        systems,
        planning,
        domains,
    )
    for topic in module.TOPICS
}


def topic_of(setting: Setting) -> Topic:
  """What a setting is about, over all its records: each of the nine scenario
  categories is as likely as any other, so none has more than a ninth."""
  draw = setting.beside("topic").rng
  names = _of_scenarios()
  return TOPICS[draw.choice(names[draw.choice(list(names))])]


@cache
def _of_scenarios() -> dict[str, list[str]]:
  """The names of the topics by scenario, all in order."""
  found: dict[str, list[str]] = {}
  for name in sorted(TOPICS):
    found.setdefault(TOPICS[name].scenario, []).append(name)
  return dict(sorted(found.items()))
