"""Topics of catalogues, registers and timetables. The field language is `Topic`'s."""

from data_gen.compose.topics.topic import Topic

TOPICS = (
    Topic(
        "loans",
        "library catalogues",
        ("loans", "catalogue", "lending", "collection"),
        {
            "copy_no": ("id", "LIB-####"),
            "lent_on": ("date", ""),
            "due_on": ("date", "after 28"),
            "genre": ("category", "genre 4"),
            "branch": ("category", "branch 3"),
            "state": ("category", "copy_state 3"),
            "pages": ("integer", "40 900"),
            "fee": ("money", "1 500"),
            "reader_mail": ("text", "email"),
        },
    ),
    Topic(
        "price_watch",
        "product comparison",
        ("price_watch", "offers", "comparison", "listings"),
        {
            "offer": ("id", "OF~"),
            "seen_on": ("date", ""),
            "model": ("category", "gadget 4"),
            "seller": ("category", "seller 4"),
            "available": ("category", "in_stock 2"),
            "stars_percent": ("integer", "10 100 percent"),
            "asking": ("money", "10 900"),
            "page": ("text", "link"),
        },
    ),
    Topic(
        "press_clips",
        "media monitoring",
        ("press_clips", "mentions", "media_log", "coverage"),
        {
            "clip": ("id", "CL-####"),
            "published": ("date", ""),
            "outlet": ("category", "outlet 4"),
            "tone": ("category", "tone 3"),
            "language": ("category", "language 4"),
            "reach": ("integer", "100 90000"),
            "ad_value": ("money", "10 2500"),
            "source": ("text", "link"),
        },
    ),
    Topic(
        "permits",
        "public registers",
        ("permits", "register", "notices", "filings"),
        {
            "file_no": ("id", "####/PR"),
            "filed_on": ("date", ""),
            "decided_on": ("date", "after 60"),
            "kind": ("category", "permit_kind 4"),
            "district": ("category", "district 4"),
            "outcome": ("category", "permit_state 3"),
            "applicant": ("text", "name"),
            "area_m2": ("integer", "8 2400"),
            "fee": ("money", "20 900"),
        },
    ),
    Topic(
        "departures",
        "travel information",
        ("departures", "timetable", "connections", "arrivals"),
        {
            "run_no": ("id", "T####"),
            "day": ("date", ""),
            "departs": ("text", "time"),
            "carrier": ("category", "carrier 4"),
            "destination": ("category", "city 4"),
            "platform": ("category", "platform 3"),
            "state": ("category", "travel_state 3"),
            "delay_min": ("integer", "0 180"),
            "fare": ("money", "5 600"),
        },
    ),
)
