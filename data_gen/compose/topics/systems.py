"""Topics of machines and services. The field language is `Topic`'s."""

from data_gen.compose.topics.topic import Topic

TOPICS = (
    Topic(
        "alerts",
        "monitoring and alerts",
        ("alerts", "incidents", "alarms", "pager_log"),
        {
            "alert": ("id", "AL-####"),
            "day": ("date", ""),
            "raised": ("text", "time"),
            "service": ("category", "ops_service 4"),
            "kind": ("category", "alert_kind 4"),
            "state": ("category", "alert_state 3"),
            "on_call": ("category", "colleague 4"),
            "hits": ("integer", "1 400"),
            "minutes": ("money", "1 900"),
        },
    ),
    Topic(
        "accounts",
        "access and accounts",
        ("accounts", "users", "access_list", "logins"),
        {
            "account": ("id", "U####"),
            "last_login": ("date", ""),
            "user": ("text", "name"),
            "email": ("text", "email of user"),
            "role": ("category", "account_role 3"),
            "state": ("category", "account_state 3"),
            "second_factor": ("category", "second_factor 3"),
            "logins": ("integer", "0 400"),
            "quota_gb": ("money", "1 500"),
        },
    ),
    Topic(
        "requests",
        "web traffic",
        ("requests", "access_export", "hits", "traffic"),
        {
            "request_id": ("id", "rq~"),
            "day": ("date", ""),
            "at": ("text", "time"),
            "page": ("category", "url 4"),
            "method": ("category", "method 2"),
            "client": ("category", "agent_kind 3"),
            "bytes": ("integer", "100 90000"),
            "milliseconds": ("money", "1 900"),
        },
    ),
    Topic(
        "backups",
        "backups and storage",
        ("backups", "snapshots", "storage_log", "copies"),
        {
            "backup": ("id", "BK-####"),
            "made_on": ("date", ""),
            "expires_on": ("date", "after 90"),
            "source": ("category", "backup_set 4"),
            "kind": ("category", "backup_kind 3"),
            "state": ("category", "backup_state 3"),
            "files": ("integer", "10 9000"),
            "gigabytes": ("money", "1 900"),
        },
    ),
    Topic(
        "machines",
        "hardware inventory",
        ("machines", "devices", "assets", "equipment_list"),
        {
            "tag": ("id", "HW####"),
            "bought_on": ("date", ""),
            "device": ("category", "device 4"),
            "vendor": ("category", "vendor 4"),
            "state": ("category", "device_state 3"),
            "room": ("category", "room 3"),
            "keeper": ("category", "colleague 4"),
            "ports": ("integer", "1 48"),
            "cost": ("money", "20 2500"),
        },
    ),
)
