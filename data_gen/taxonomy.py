"""What tasks are about and what is done in them: the names, with definitions.

Nine scenario categories with their subcategories say where a task comes from;
seven operation categories with their atomic operations say what it takes. A
topic names one subcategory, an operation, a sink or a chore one atomic operation,
a kind of file or a pattern of turns those that come with it. No name stands in two
categories.
"""

from __future__ import annotations

from dataclasses import dataclass

MACROS = (
    "Productivity & Collaboration",
    "Systems & Automation",
    "Analysis & Reasoning",
    "Content & Domain",
    "Planning & Knowledge",
    "Software Development",
)


@dataclass(frozen=True)
class Category:
  """A category with its members, each name -> definition.

  `macro` is the one of `MACROS` that a scenario belongs to; operations have none.
  """

  definition: str
  members: dict[str, str]
  macro: str = ""


SCENARIOS = {
    "office and daily tasks": Category(
        "The running of an office or a household: what was bought, booked and used.",
        {
            "orders and sales": "What customers ordered, its state and its value.",
            "expenses and travel": "What trips and purchases cost, and who claims it.",
            "meetings and rooms": "Who meets when and where, and what is booked for it.",
            "household and shopping": "What a home buys, pays and has to renew.",
            "stock and supplies": "What lies on the shelves and when to order more.",
        },
        "Productivity & Collaboration",
    ),
    "communication and collaboration": Category(
        "Messages between people and what they ask of each other.",
        {
            "mail triage": "Sorting an inbox by sender, urgency and need of an answer.",
            "team messages": "Channels and threads in which colleagues work together.",
            "customer support": "Requests of customers until they are settled.",
            "newsletters and campaigns": "What is sent to many and how it is received.",
            "events and invitations": "Guests, their answers and what they need.",
        },
        "Productivity & Collaboration",
    ),
    "information retrieval": Category(
        "Finding the right entries in what somebody else has collected.",
        {
            "library catalogues": "Titles, copies and loans of a collection.",
            "product comparison": "Offers of shops side by side.",
            "media monitoring": "Mentions in press, radio and web, with their reach.",
            "public registers": "Entries of authorities: permits, licences, notices.",
            "travel information": "Connections, their times and their delays.",
        },
        "Content & Domain",
    ),
    "analysis and decision support": Category(
        "Numbers that somebody will decide by.",
        {
            "sales analysis": "Takings of shops by product, place and time.",
            "surveys and feedback": "Answers of many people and their scores.",
            "budgets and forecasts": "Planned against spent, by department and quarter.",
            "experiments and measurements": "Trials, their conditions and readings.",
            "supplier comparison": "Offers of suppliers: cost, time and quality.",
        },
        "Analysis & Reasoning",
    ),
    "automation and workflows": Category(
        "Work that runs by itself or passes from desk to desk by rules.",
        {
            "scheduled jobs": "Runs of jobs at set times, their length and outcome.",
            "data pipelines": "Batches that move between systems, accepted or refused.",
            "document processing": "Scans and forms on their way into an archive.",
            "approvals": "Requests that wait for somebody's yes.",
            "device automation": "Sensors and switches, what they read and did.",
        },
        "Systems & Automation",
    ),
    "software development": Category(
        "Making software: its faults, tests, reviews, parts and releases.",
        {
            "issue tracking": "Faults and wishes, whose they are and how they stand.",
            "test results": "Runs of tests, what passed, failed and took long.",
            "code review": "Changes proposed, read and merged.",
            "dependencies and licences": "Packages in use, their versions and terms.",
            "releases": "What was shipped where, and what it changed.",
        },
        "Software Development",
    ),
    "systems and infrastructure": Category(
        "Machines and services, and whether they do what they should.",
        {
            "monitoring and alerts": "Alarms of services, how bad and how long.",
            "access and accounts": "Who may enter what, and when they last did.",
            "web traffic": "Requests to servers, their answers and times.",
            "backups and storage": "Copies, their size, age and soundness.",
            "hardware inventory": "Devices, where they stand and what they cost.",
        },
        "Systems & Automation",
    ),
    "planning and knowledge organisation": Category(
        "What is to be done, learned or remembered, in order.",
        {
            "project planning": "Milestones, owners, dates and progress.",
            "study and courses": "Lessons, participants and results.",
            "notes and reading": "What was read or noted, and what came of it.",
            "logistics and routes": "What goes where, on which vehicle.",
            "shifts and rosters": "Who works when, and on which post.",
        },
        "Planning & Knowledge",
    ),
    "professional domain support": Category(
        "The records of one profession, in its own terms.",
        {
            "health and clinics": "Appointments and treatments of a practice.",
            "finance and accounting": "Postings, accounts and payments.",
            "property and facilities": "Buildings, faults in them and their repair.",
            "science and field work": "Samples and sightings, with place and method.",
            "law and contracts": "Agreements, parties, terms and their end.",
            "farming and food": "Plots, crops and what was brought in.",
        },
        "Content & Domain",
    ),
}

OPERATIONS = {
    "reading and retrieval": Category(
        "Getting at what is there, in whatever form it is kept.",
        {
            "file reading": "Taking records from a file by the rules of its form.",
            "document reading": "Taking records or text from office documents.",
            "mail reading": "Finding messages and what they carry.",
            "database query": "Asking a database for rows.",
            "log reading": "Picking events out of a log.",
            "archive reading": "Looking into packed files without losing them.",
            "web lookup": "Fetching a fact from a page.",
            "memory recall": "Finding what earlier notes say.",
        },
    ),
    "data transformation": Category(
        "Making other rows, columns or values from those that are there.",
        {
            "filtering": "Keeping the rows that meet a condition.",
            "sorting": "Putting rows in an order.",
            "aggregation": "One row a group: sums, counts, means.",
            "joining": "Adding what another file knows by a common key.",
            "concatenation": "Making one table of several of one form.",
            "deduplication": "Leaving each record once.",
            "pivoting": "Turning values of a column into columns.",
            "column editing": "Renaming, choosing, ordering or computing columns.",
            "normalisation": "Writing the same thing the same way everywhere.",
            "date handling": "Choosing or computing by dates.",
            "text extraction": "Taking a part out of a text.",
        },
    ),
    "analysis and checking": Category(
        "Saying something about the records that none of them says.",
        {
            "ranking": "Placing rows by a value.",
            "bucketing": "Sorting values into ranges.",
            "share and trend": "Parts of a whole, and sums that run.",
            "outlier detection": "Finding values far from the rest.",
            "missing values": "Finding and treating gaps.",
            "validation": "Checking records against rules.",
            "reconciliation": "Finding what two sources disagree on.",
            "schedule conflicts": "Finding what can't happen at the same time.",
        },
    ),
    "writing and reporting": Category(
        "Handing over a result in the form asked for.",
        {
            "file writing": "A result as a data file.",
            "report writing": "A result for people to read.",
            "database writing": "A result as rows of a database.",
            "format conversion": "The same content in another format.",
        },
    ),
    "files and systems": Category(
        "Order among files and the settings of programs.",
        {
            "file organisation": "Moving and sorting files into folders.",
            "file renaming": "New names by a rule.",
            "file cleanup": "Removing copies and what nobody needs.",
            "archiving": "Packing and unpacking files.",
            "configuration": "Changing a setting and nothing else.",
        },
    ),
    "development and automation": Category(
        "Changing programs, and having things done later.",
        {
            "script repair": "Making a program do what it should.",
            "script writing": "A new small program that does one thing.",
            "testing": "Running tests and reading what they say.",
            "version control": "History, branches, commits and merges.",
            "scheduling": "Having something run at set times.",
        },
    ),
    "communication and memory": Category(
        "Telling others, and remembering for next time.",
        {
            "messaging": "Sending a message to the right person.",
            "calendar keeping": "Entering or moving an event.",
            "contact keeping": "Keeping addresses right.",
            "memory keeping": "Writing down what later turns need.",
        },
    ),
}

# subcategory -> its scenario category, atomic operation -> its category
SCENARIO_OF = {m: name for name, c in SCENARIOS.items() for m in c.members}
CATEGORY_OF = {m: name for name, c in OPERATIONS.items() for m in c.members}
