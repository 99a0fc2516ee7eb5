"""What records are about: at least one topic for each scenario subcategory."""

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
