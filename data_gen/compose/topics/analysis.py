"""Topics of figures that somebody will decide by. The field language is `Topic`'s."""

from data_gen.compose.topics.topic import Topic

TOPICS = (
    Topic(
        "store_sales",
        "sales analysis",
        ("store_sales", "takings", "till_export", "daily_sales"),
        {
            "till_no": ("id", "TILL-####"),
            "sold_on": ("date", ""),
            "store": ("category", "store 5"),
            "section": ("category", "section 4"),
            "promotion": ("category", "promo 3"),
            "units": ("integer", "1 300"),
            "revenue": ("money", "5 2500"),
            "margin_percent": ("integer", "1 80 percent"),
        },
    ),
    Topic(
        "survey",
        "surveys and feedback",
        ("survey", "responses", "feedback", "ratings"),
        {
            "response": ("id", "RSP####"),
            "answered_on": ("date", ""),
            "question": ("category", "question 4"),
            "age_group": ("category", "age_group 3"),
            "route": ("category", "survey_route 3"),
            "score": ("integer", "0 100"),
            "minutes": ("money", "1 500"),
            "comment": ("text", "note customer"),
        },
    ),
    Topic(
        "budget_lines",
        "budgets and forecasts",
        ("budget", "plan", "forecast", "cost_plan"),
        {
            "line": ("id", "BL-####"),
            "entered": ("date", ""),
            "department": ("category", "department 4"),
            "quarter": ("category", "quarter 4"),
            "kind": ("category", "budget_line 4"),
            "state": ("category", "budget_state 3"),
            "spent_percent": ("integer", "1 100 percent"),
            "planned": ("money", "100 9000"),
            "spent": ("money", "50 9000"),
        },
    ),
    Topic(
        "experiments",
        "experiments and measurements",
        ("trials", "measurements", "lab_runs", "readings"),
        {
            "sample": ("id", "S####X"),
            "run_on": ("date", ""),
            "reagent": ("category", "reagent 4"),
            "method": ("category", "lab_method 3"),
            "result": ("category", "lab_result 3"),
            "operator": ("category", "colleague 4"),
            "cycles": ("integer", "1 200"),
            "yield_mg": ("money", "1 800"),
            "observation": ("text", "note tech"),
        },
    ),
    Topic(
        "quotes",
        "supplier comparison",
        ("quotes", "tenders", "supplier_offers", "bids"),
        {
            "quote": ("id", "Q-####"),
            "received": ("date", ""),
            "valid_until": ("date", "after 40"),
            "supplier": ("category", "supplier 5"),
            "material": ("category", "material 4"),
            "grade": ("category", "quality 3"),
            "lead_days": ("integer", "2 90"),
            "unit_cost": ("money", "3 900"),
            "contact": ("text", "email"),
        },
    ),
)
