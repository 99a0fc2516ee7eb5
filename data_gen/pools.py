"""The words that worlds are made of: for each kind, (train, heldout).

The two sides of a kind are disjoint, so that no name, file, value or place of
a held-out task was ever seen in training. Words of one kind never occur
inside a word of another kind that a family searches for in the same file.
"""

from __future__ import annotations

from data_gen.compose.phrases import PHRASES
from data_gen.compose.words import WORDS

_WORDS = {
    "first": (
        "Ada Bruno Celia Dario Elena Farid Greta Hugo Ines Jonas Kira Leon Mara"
        " Nadia Oskar Petra Quentin Rosa Stefan Tilda Umar Vera Wanda Xavier"
        " Yusuf Zelda Amir Bianca Conrad Delia Emil Freya Gideon Helga Ivo Jutta",
        "Anouk Basil Corin Daphne Edgar Fiona Gunnar Hanneke Idris Jolanda Kasper"
        " Lucinda Matteo Noor Ottilie Pablo Rafael Saskia Teodor Viola",
    ),
    "last": (
        "Almeida Brandt Castillo Dahl Eriksen Fontaine Gruber Haddad Ivanova"
        " Jansen Kowalski Lindqvist Moreau Novak Okafor Pereira Quist Rossi"
        " Schuster Tanaka Ueda Varga Whitfield Yilmaz Zimmer Abbott Berger Cheng"
        " Duarte Engel",
        "Achterberg Bianchi Cardoso Delacroix Fitzroy Goldstein Hargreaves Ibarra"
        " Juhasz Kaplan Larkin Mancini Nakamura Osborne Petrov Rahman Sandoval"
        " Thorne",
    ),
    "company": (
        "Harborlight Copperfield Juniper Northgate Saltmarsh Quillwood Brightwater"
        " Larkspur Millbrook Sundial Ironbridge Cloverdale Pinecrest Windmere"
        " Stonefield Redwing",
        "Tidewater Foxglove Granite Lanternhouse Marigold Oakhaven Riverbend"
        " Silverline Thistledown Wrenfield",
    ),
    "trade": (
        "Bakery Logistics Studio Clinic Hardware Books Catering Garden Travel",
        "Archive Optics Ceramics Printing Cycles Theatre",
    ),
    "role": (
        "bookkeeper|office manager|event planner|shop owner|lab assistant|estate"
        " agent|charity coordinator|site foreman|travel agent|studio producer",
        "librarian|dispatch lead|practice nurse|vineyard manager|museum"
        " registrar|tour operator",
    ),
    "city": (
        "Lisbon Oslo Geneva Porto Krakow Dublin Malmo Turin Bergen Lyon Ghent"
        " Tallinn Seville Leipzig",
        "Zagreb Utrecht Bilbao Aarhus Trieste Galway Riga Nantes",
    ),
    "client": (
        "Acorn Beacon Cobblestone Driftwood Everline Fernhill Goldcrest Hollis"
        " Inkwell Kestrel Lumen Meadowlark Nimbus Orchard Pelican Rowan",
        "Alder Bluebell Cinder Dovetail Elmwood Falcon Heron Magnolia Osprey"
        " Tamarind",
    ),
    "project": (
        "Bluebird Cascade Delta Ember Harvest Jigsaw Keystone Mosaic Orbit"
        " Prism Quarry Summit",
        "Anchor Compass Drumlin Glacier Lantern Meridian Pinwheel Tundra",
    ),
    "stem": (
        "orders trips expenses invoices shipments donations bookings payroll"
        " budget visits repairs payments stock members tickets courses parts"
        " meals fuel gadgets",
        "refunds rentals grants deliveries royalties claims permits surveys"
        " harvests loans auctions cruises",
    ),
    "amount": (
        "amount price hours weight cost miles total freight tax",
        "fee distance deposit quantity wage litres",
    ),
    "folder": (
        "data papers shared input records",
        "desk store office source",
    ),
    "target": (
        "out results reports answers summary",
        "exports handoff outbox finished",
    ),
    "topic": (
        "alpine bamboo cotton dragon eclipse fabric galaxy hazel island jasmine"
        " kettle ladder marble nectar oyster pepper quartz ribbon saffron timber",
        "amber birch canyon dahlia espresso flannel gravel indigo lagoon mango"
        " nutmeg opal",
    ),
    "item": (
        "apples bricks candles drills envelopes flags gloves hammers inks jars"
        " kites lamps mugs nails ovens paints ropes screws towels vases",
        "anvils benches crates dishes easels filters goggles hoses ladles masks"
        " pillows rakes",
    ),
    "service": (
        "gateway mailer billing scanner printer backup cache catalog kiosk"
        " router search uploader",
        "courier indexer ledger monitor proxy scheduler sensor vault",
    ),
    "level": (
        "ERROR FAILED DENIED TIMEOUT CRASH RETRY",
        "FATAL REFUSED BLOCKED EXPIRED",
    ),
    "status": (
        "shipped overdue cancelled approved waiting packed",
        "disputed returned confirmed pending",
    ),
    "key": (
        "port timeout workers retries cache_size page_size max_users batch_size"
        " refresh keep_days",
        "threads backoff buffer_size queue_length max_files poll_rate",
    ),
    "rate": (
        "TAX RATE MARGIN DISCOUNT TOLL",
        "MARKUP SURCHARGE LEVY BONUS",
    ),
    "ext": ("pdf png docx jpg xlsx", "pptx gif odt tiff"),
    "room": (
        "Cobalt Maple Saturn Velvet Willow Zephyr Cedar Neptune",
        "Crimson Jade Mercury Poplar Scarlet",
    ),
    "meeting": (
        "Board review|Budget call|Design critique|Hiring panel|Kickoff"
        " lunch|Risk briefing|Sales standup|Vendor demo",
        "Audit handover|Fire drill|Grant interview|Press preview|Safety"
        " walk|Tenant forum",
    ),
    "chore": (
        "Book the venue|Renew the lease|Order more labels|Update the"
        " brochure|Water the ferns|Fix the door sign|Test the alarm|Pay the"
        " caterer|Print the badges|Clean the projector",
        "Charge the radios|Polish the trophies|Replace the carpet|Sharpen the"
        " knives|Count the chairs|Mail the leaflets|Measure the windows|Oil the"
        " hinges",
    ),
}

POOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    kind: tuple(
        tuple(words.split("|") if "|" in words else words.split()) for words in sides
    )
    for kind, sides in (_WORDS | WORDS | PHRASES).items()
}
