"""Topics of work that runs by itself or by rules. The field language is `Topic`'s."""

from data_gen.compose.topics.topic import Topic

TOPICS = (
    Topic(
        "job_runs",
        "scheduled jobs",
        ("job_runs", "runs", "schedule_log", "executions"),
        {
            "run": ("id", "J~"),
            "day": ("date", ""),
            "started": ("text", "time"),
            "job": ("category", "job 4"),
            "host": ("category", "host 3"),
            "result": ("category", "job_result 3"),
            "attempts": ("integer", "1 40"),
            "seconds": ("money", "1 900"),
        },
    ),
    Topic(
        "imports",
        "data pipelines",
        ("imports", "batches", "feed_log", "transfers"),
        {
            "batch": ("id", "BAT-####"),
            "loaded_on": ("date", ""),
            "feed": ("category", "feed 4"),
            "format": ("category", "format 3"),
            "state": ("category", "batch_state 3"),
            "owner": ("category", "colleague 4"),
            "records": ("integer", "20 9000"),
            "megabytes": ("money", "1 900"),
            "note": ("text", "note tech"),
        },
    ),
    Topic(
        "scans",
        "document processing",
        ("scans", "scan_queue", "documents", "archive_list"),
        {
            "barcode": ("id", "DOC####"),
            "scanned_on": ("date", ""),
            "document": ("category", "document 5"),
            "state": ("category", "scan_state 3"),
            "desk": ("category", "clerk_desk 3"),
            "pages": ("integer", "1 120"),
            "megabytes": ("money", "1 700"),
            "remark": ("text", "note work"),
        },
    ),
    Topic(
        "approvals",
        "approvals",
        ("approvals", "pending_requests", "sign_offs", "request_list"),
        {
            "request": ("id", "REQ-####"),
            "asked_on": ("date", ""),
            "needed_by": ("date", "after 30"),
            "kind": ("category", "request_kind 4"),
            "department": ("category", "department 4"),
            "decision": ("category", "decision 3"),
            "asked_by": ("text", "name"),
            "days_waiting": ("integer", "0 60"),
            "value": ("money", "10 2500"),
        },
    ),
    Topic(
        "sensor_readings",
        "device automation",
        ("sensors", "readings_log", "device_log", "house_data"),
        {
            "reading": ("id", "SN-####"),
            "day": ("date", ""),
            "at": ("text", "time"),
            "place": ("category", "sensor_place 4"),
            "sensor": ("category", "sensor_kind 3"),
            "state": ("category", "sensor_state 3"),
            "battery_percent": ("integer", "1 100 percent"),
            "value": ("money", "1 900"),
        },
    ),
)
