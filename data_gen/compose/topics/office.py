"""Topics of offices and households. The field language is `Topic`'s."""

from data_gen.compose.topics.topic import Topic

TOPICS = (
    Topic(
        "orders",
        "orders and sales",
        ("orders", "sales", "web_orders", "order_book"),
        {
            "order_id": ("id", "ORD"),
            "date": ("date", ""),
            "client": ("category", "client 6"),
            "city": ("category", "city 4"),
            "status": ("category", "status 3"),
            "quantity": ("integer", "1 60"),
            "amount": ("money", "5 900"),
        },
    ),
    Topic(
        "expenses",
        "expenses and travel",
        ("expenses", "trip_costs", "claims_list", "spending"),
        {
            "claim_id": ("id", "EXP/####"),
            "spent_on": ("date", ""),
            "employee": ("category", "colleague 4"),
            "kind": ("category", "expense_kind 4"),
            "paid_by": ("category", "payment 2"),
            "amount": ("money", "4 700"),
            "vat_percent": ("integer", "0 60 percent"),
            "remark": ("text", "note work"),
        },
    ),
    Topic(
        "room_bookings",
        "meetings and rooms",
        ("bookings", "room_plan", "meetings", "reservations"),
        {
            "booking": ("id", "B####"),
            "day": ("date", ""),
            "starts": ("text", "time"),
            "room": ("category", "room 4"),
            "purpose": ("category", "purpose 4"),
            "booked_by": ("category", "colleague 4"),
            "equipment": ("category", "equipment 3"),
            "seats": ("integer", "2 80"),
            "charge": ("money", "10 800"),
        },
    ),
    Topic(
        "household",
        "household and shopping",
        ("household", "purchases", "receipts", "home_costs"),
        {
            "receipt_no": ("id", "R-####"),
            "bought_on": ("date", ""),
            "shop": ("category", "shop 4"),
            "area": ("category", "home_section 4"),
            "buyer": ("category", "household_member 3"),
            "items": ("integer", "1 40"),
            "paid": ("money", "2 600"),
        },
    ),
    Topic(
        "supplies",
        "stock and supplies",
        ("supplies", "stock", "store_room", "inventory"),
        {
            "sku": ("id", "####-S"),
            "last_counted": ("date", ""),
            "article": ("category", "supply 5"),
            "shelf": ("category", "shelf 3"),
            "state": ("category", "stock_state 3"),
            "pieces": ("integer", "0 400"),
            "unit_cost": ("money", "1 500"),
            "supplier_mail": ("text", "email"),
        },
    ),
)
