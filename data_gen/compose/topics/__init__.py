"""What records are about: at least one topic for each scenario subcategory."""

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
  scenario = draw.choice(sorted({topic.scenario for topic in TOPICS.values()}))
  names = sorted(name for name, t in TOPICS.items() if t.scenario == scenario)
  return TOPICS[draw.choice(names)]
