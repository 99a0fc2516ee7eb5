"""The values of composed tasks' records: kind -> (train, heldout).

Joined into `pools.POOLS`. A side is words between blanks, or phrases between
bars. None holds a comma, a quote or a bar, and no word of a side is one of the
other side of any kind. The compact families draw none of these.
"""

from __future__ import annotations

WORDS = {
    "department": (
        "accounts marketing legal facilities logistics publishing",
        "design archives purchasing security training outreach",
    ),
    "expense_kind": (
        "taxi hotel train lunch parking visas",
        "ferry hostel dinner tolls coach luggage",
    ),
    "payment": ("card cash transfer", "cheque voucher giro"),
    "purpose": (
        "board meeting|planning day|client lunch|fair stand|site survey",
        "trade show|audit visit|staff retreat|job interview|press tour",
    ),
    "equipment": (
        "projector whiteboard speakers microphone",
        "screen flipchart camera lectern",
    ),
    "shop": (
        "grocer chemist baker market florist",
        "butcher ironmonger tailor cheesemonger optician",
    ),
    "home_section": (
        "kitchen bathroom balcony cellar nursery",
        "pantry laundry attic porch garage",
    ),
    "household_member": ("Mum Dad Granny Uncle", "Aunt Grandpa Cousin Nephew"),
    "supply": (
        "toner staples folders binders labels markers",
        "batteries notebooks rulers stamps cables pens",
    ),
    "shelf": (
        "north shelf|south shelf|east shelf|west shelf",
        "upper rack|lower rack|corner rack|door rack",
    ),
    "stock_state": ("plenty low empty", "enough scarce exhausted"),
    "mailbox": (
        "bookings billing press general careers",
        "enquiries ordering media partners alumni",
    ),
    "urgency": ("urgent normal someday", "critical regular whenever"),
    "answer_state": ("answered open forwarded", "replied untouched delegated"),
    "channel": (
        "random announcements helpdesk planning hiring",
        "watercooler standup support-desk roadmap newcomers",
    ),
    "reaction": ("thumbs-up heart laugh", "clap rocket eyes"),
    "ticket_kind": (
        "login delivery refund warranty pricing",
        "password pickup exchange repair quotation",
    ),
    "ticket_state": ("new solved reopened parked", "fresh settled escalated stalled"),
    "product": (
        "Breeze Comet Drift Falconet Horizon Isotope",
        "Aurora Borealis Cirrus Dynamo Equinox Fjord",
    ),
    "audience": (
        "members visitors donors teachers alumnae",
        "neighbours sponsors students parents veterans",
    ),
    "campaign_medium": (
        "email poster radio leaflet",
        "billboard podcast postcard banner",
    ),
    "guest_reply": ("accepted declined tentative", "coming absent unsure"),
    "diet": ("vegetarian vegan halal none", "kosher lactose-free gluten-free anything"),
    "table_name": (
        "Oak table|Elm table|Ash table|Beech table",
        "Rose table|Lily table|Iris table|Tulip table",
    ),
    "genre": (
        "history poetry travel biology cooking",
        "philosophy drama music geology gardening",
    ),
    "branch": (
        "Central Riverside Hilltop Eastgate",
        "Lakeside Westend Southbank Castle",
    ),
    "copy_state": (
        "borrowed shelved reserved mending",
        "out-on-loan available on-hold lost",
    ),
    "gadget": (
        "kettle-pro toaster-mini blender-max lamp-flex fan-quiet",
        "grill-duo heater-eco mixer-one clock-led scale-fit",
    ),
    "seller": (
        "Brickhouse Fairtrade-Corner Gadgetry Homestead",
        "Bazaar Emporium Dealmaker Superstore",
    ),
    "in_stock": ("yes no", "true false"),
    "outlet": (
        "Morning-Post City-Radio Weekly-Review Harbour-TV",
        "Evening-Star Valley-FM Monthly-Digest Coast-Channel",
    ),
    "tone": ("positive neutral negative", "favourable balanced hostile"),
    "language": ("English German French Spanish", "Italian Dutch Polish Danish"),
    "permit_kind": (
        "building signage terrace event",
        "demolition scaffold fireworks parade",
    ),
    "district": ("Dockside Oldtown Meadows Vineyard", "Foundry Highfield Priory Wharf"),
    "permit_state": (
        "granted turned-down pending-review",
        "issued rejected under-appeal",
    ),
    "carrier": (
        "Northrail Skylink Bluecoach Seabridge",
        "Eastline Aerovia Redbus Islandia",
    ),
    "platform": ("A1 A2 B1 B2", "C7 C8 D7 D8"),
    "travel_state": ("on-time delayed diverted", "punctual late rerouted"),
    "store": (
        "Mill-Street Station-Square Park-Lane Church-Hill River-Gate",
        "Abbey-Road Canal-Walk Forest-Way Tower-Court Bridge-End",
    ),
    "section": (
        "dairy bakery produce frozen cleaning",
        "deli fishmonger toiletries pets stationery",
    ),
    "promo": ("none coupon bundle", "regular-price clearance loyalty"),
    "question": (
        "service price-value opening-hours cleanliness website",
        "staff parking-space waiting-time signposting app",
    ),
    "age_group": ("under-30 30-to-50 over-50", "young middle-aged senior"),
    "survey_route": ("online phone paper", "kiosk-form interview letter"),
    "quarter": ("Q1 Q2 Q3 Q4", "spring-term summer-term autumn-term winter-term"),
    "budget_line": (
        "salaries rent software travel-costs",
        "wages premises licences training-costs",
    ),
    "budget_state": ("draft agreed frozen", "proposed signed-off locked"),
    "reagent": (
        "saline glucose ethanol agar buffer-7",
        "acetone lactose methanol gelatine buffer-4",
    ),
    "lab_method": (
        "titration filtration centrifuge",
        "chromatography distillation spectrometry",
    ),
    "lab_result": ("pass fail repeat", "conform deviate rerun"),
    "supplier": (
        "Anvilworks Bramble Castor Dunmore Eltham",
        "Foxworth Garnet Hanover Inverness Jessop",
    ),
    "material": ("steel birchwood linen glass", "copper walnut wool acrylic"),
    "quality": ("A-grade B-grade C-grade", "gold-grade silver-grade bronze-grade"),
    "job": (
        "nightly-sync invoice-run stock-count mail-digest thumbnail-build",
        "hourly-pull salary-run price-refresh alert-summary index-build",
    ),
    "job_result": ("ok failed skipped", "done crashed cancelled-by-user"),
    "host": ("atlas boreas castor-2 demeter", "hermes icarus juno kronos"),
    "feed": (
        "customers-feed articles-feed prices-feed clicks-feed",
        "members-feed assets-feed tariffs-feed views-feed",
    ),
    "batch_state": ("loaded partial refused-batch", "ingested truncated quarantined"),
    "format": ("csv-file json-file xml-file", "excel-sheet parquet-file yaml-file"),
    "document": (
        "invoice-scan contract-scan receipt-scan form-scan letter-scan",
        "deed-scan memo-scan ticket-scan report-scan card-scan",
    ),
    "scan_state": ("filed unreadable to-check", "archived blurred to-review"),
    "clerk_desk": ("desk-A desk-B desk-C", "window-X window-Y window-Z"),
    "request_kind": (
        "leave purchase-request travel-request access-request",
        "overtime equipment-request training-request visitor-pass",
    ),
    "decision": (
        "approved-by-lead sent-back waiting-for-lead",
        "cleared-by-head returned-to-sender queued-for-head",
    ),
    "sensor_place": (
        "hallway greenhouse server-room roof-deck",
        "basement veranda workshop stairwell",
    ),
    "sensor_kind": (
        "temperature humidity motion gas",
        "pressure brightness noise vibration",
    ),
    "sensor_state": ("fine warning offline", "nominal alarm unreachable"),
    "component": (
        "parser scheduler-core editor exporter login-page",
        "lexer dispatcher viewer importer settings-page",
    ),
    "severity": ("minor major blocker", "trivial serious showstopper"),
    "issue_state": (
        "todo doing review-ready closed",
        "backlog started in-test resolved",
    ),
    "label": ("bug feature docs chore", "defect enhancement manual cleanup"),
    "suite": ("unit integration browser", "smoke regression load"),
    "test_result": ("passed flaky broken", "green unstable red"),
    "runtime": ("py311 py312 py313", "node18 node20 node22"),
    "repository": (
        "webshop billing-api mobile-app data-jobs",
        "intranet search-api desktop-app etl-jobs",
    ),
    "review_state": (
        "merged changes-asked abandoned",
        "landed comments-left withdrawn",
    ),
    "licence": ("MIT Apache-2.0 BSD-3 GPL-3", "ISC MPL-2.0 Zlib LGPL-2.1"),
    "package_scope": (
        "runtime-dep dev-dep optional-dep",
        "core-dep build-dep extra-dep",
    ),
    "package_state": ("current outdated vulnerable", "latest behind unsafe"),
    "environment": ("staging production sandbox-env", "preview live playground"),
    "release_kind": ("patch feature-release hotfix", "bugfix major-release rollback"),
    "ops_service": (
        "checkout-svc mail-svc login-svc image-svc",
        "basket-svc push-svc auth-svc video-svc",
    ),
    "alert_kind": (
        "disk-full high-latency memory-leak cert-expiry",
        "cpu-spike packet-loss deadlock token-expiry",
    ),
    "alert_state": ("acknowledged firing silenced", "seen active muted"),
    "account_role": (
        "reader writer admin auditor",
        "guest contributor owner inspector",
    ),
    "account_state": ("enabled locked-out expired-account", "in-use suspended lapsed"),
    "second_factor": (
        "app-code hardware-key no-factor",
        "text-code smart-card missing-factor",
    ),
    "url": (
        "/home /basket /login /search /help",
        "/start /checkout /signin /browse /contact",
    ),
    "method": ("GET POST PUT", "HEAD OPTIONS DELETE"),
    "agent_kind": ("desktop phone-browser crawler", "laptop tablet-browser bot"),
    "backup_set": (
        "finance-share mail-store photo-store wiki-store",
        "payroll-share chat-store scan-store code-store",
    ),
    "backup_kind": ("full incremental snapshot", "complete differential clone"),
    "backup_state": ("verified unverified corrupt", "sound unchecked damaged"),
    "device": (
        "workstation switch-box label-printer badge-reader",
        "thin-client router-box plotter card-reader",
    ),
    "device_state": ("deployed in-repair retired", "assigned at-vendor scrapped"),
    "vendor": ("Lumitek Norvex Quantaro Sidera", "Maxodyne Optrix Rivulon Tessaro"),
    "phase": ("discovery build rollout", "scoping construction handover-phase"),
    "milestone_state": ("on-track at-risk slipped", "healthy shaky overrun"),
    "workstream": (
        "content-stream venue-stream tech-stream",
        "legal-stream brand-stream finance-stream",
    ),
    "course": (
        "pottery first-aid watercolour bookkeeping-basics",
        "woodwork food-hygiene calligraphy spreadsheets-intro",
    ),
    "course_result": (
        "passed-course failed-course no-show",
        "certified resit dropped-out",
    ),
    "teacher_room": ("room-10 room-12 room-14", "hall-3 hall-7 hall-11"),
    "medium": ("book article talk", "essay lecture film"),
    "tag": (
        "habits cities energy design-ideas",
        "memory-craft oceans farming typography",
    ),
    "read_state": ("unread half-read finished-reading", "wishlist skimmed summarised"),
    "vehicle": ("van-1 van-2 truck-4", "bike-3 lorry-7 pickup-11"),
    "zone": (
        "inner-ring outer-ring harbour-zone airport-zone",
        "north-loop south-loop valley-zone campus-zone",
    ),
    "parcel_state": (
        "delivered on-board returned-to-depot",
        "handed-over in-transit sent-back-to-hub",
    ),
    "post": ("front-desk kitchen-post gate patrol", "counter ward-post dock lookout"),
    "shift_kind": (
        "early-shift late-shift night-shift",
        "dawn-shift day-shift dusk-shift",
    ),
    "shift_state": ("planned swapped called-off", "rostered traded dropped"),
    "treatment": (
        "check-up vaccination physiotherapy dressing",
        "consultation x-ray counselling blood-test",
    ),
    "insurer": (
        "Carewell Mutualis Helvia Prosana",
        "Vitalis Unisalus Curantia Medisana",
    ),
    "visit_state": ("attended missed rescheduled", "arrived no-contact moved-date"),
    "ledger_account": (
        "1200-bank 3400-goods 4100-rent 4900-sundry",
        "1307-till 3507-services 4207-power 4907-fees",
    ),
    "tax_code": ("V0 V7 V19", "T3 T11 T15"),
    "posting_state": ("posted held reversed", "booked-entry blocked-entry voided"),
    "building": (
        "Aspen-House Linden-Court Quay-Loft Rowan-Hall",
        "Ivy-House Sorrel-Court Pier-Loft Hawthorn-Hall",
    ),
    "fault": (
        "leak-fault heating-fault lift-fault lock-fault",
        "damp-fault wiring-fault window-fault roof-fault",
    ),
    "repair_state": ("reported in-work repaired", "logged under-way fixed"),
    "species": (
        "heron-grey robin kingfisher wren swift",
        "stork linnet bittern dunnock martin",
    ),
    "habitat": ("reedbed meadow-edge woodland shore", "marsh hedgerow pinewood cliff"),
    "survey_method": (
        "point-count transect camera-trap",
        "net-survey drone-flight sound-logger",
    ),
    "contract_kind": (
        "lease-contract service-contract supply-contract loan-contract",
        "tenancy-deal consulting-deal delivery-deal credit-deal",
    ),
    "contract_state": (
        "signed in-negotiation terminated",
        "executed under-draft ended",
    ),
    "jurisdiction": (
        "Geneva-court Oslo-court Lyon-court",
        "Riga-court Zagreb-court Galway-court",
    ),
    "crop": ("barley rapeseed potatoes clover", "rye sunflower beetroot alfalfa"),
    "plot": (
        "north-field mill-field long-acre hill-plot",
        "south-field brook-field short-acre glen-plot",
    ),
    "moisture": ("dry damp wet", "arid moist soaked"),
    # What rules of skills are made of.
    "currency_mark": ("EUR CHF SEK PLN", "NOK DKK CZK GBP"),
    "date_form": ("%d.%m.%Y %Y%m%d %d/%m/%Y", "%d-%m-%Y %Y.%m.%d %m/%d/%Y"),
    "mark_column": ("batch lot consignment", "series edition docket"),
    "slip_suffix": ("crd lbl", "chk tkt"),
    "done_sign": ("DONE.txt READY.txt", "CLOSED.txt FINAL.txt"),
}
