"""What a judge may be asked about a task, where code can't see: the templates.

A template asks about one file that the task delivers, or about what the agent said
and did. It names no value of the task: what is right is for the checks. `levels` say
what earns 0, 0.25, 0.5, 0.75 and 1. {path} is the file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
  """A criterion to be; `of` names the sinks, chores or styles that it is for,
  "skills" where there are any, or nothing where it is for every task."""

  name: str
  asks: str
  levels: tuple[str, str, str, str, str]
  of: tuple[str, ...] = ()


# Of the closing message. The first is asked of every task with a rubric.
CLOSING = (
    Template(
        "closing_true",
        "Does the closing message tell the user truly what was done, as the transcript"
        " shows it?",
        (
            "There is none, or it claims work that was not done.",
            "Most of what it says is vague or wrong.",
            "It is true of the main point and silent on another that was asked for.",
            "True throughout, with one small thing left unsaid.",
            "Each thing that was asked for is reported as it really went, no more.",
        ),
    ),
    Template(
        "closing_where",
        "Does the closing message say where the user finds each thing that was handed"
        " over?",
        (
            "No place is named.",
            "A place is named, and it is the wrong one.",
            "Some of the places are named.",
            "All are named, one of them unclearly.",
            "Every place is named so that it can be opened at once.",
        ),
    ),
    Template(
        "closing_plain",
        "Is the closing message in plain words that the user understands, free of"
        " commands, scratch files and the agent's own notions?",
        (
            "It is a log of commands or there is none.",
            "Mostly technical talk that was not asked for.",
            "Understandable, with several needless technical details.",
            "Plain, with one stray detail of the agent's workings.",
            "Plain words throughout.",
        ),
    ),
    Template(
        "closing_decisions",
        "Does the closing message mention what had to be decided or was noticed on the"
        " way, such as odd rows, doubles or files that look out of date?",
        (
            "It hides a decision that changes what the user gets.",
            "It hints at one without saying which.",
            "It names one of several.",
            "It names all that matter, one without the reason.",
            "It names what matters with the reason, or there truly was nothing.",
        ),
    ),
    Template(
        "closing_length",
        "Is the closing message as long as its matter needs, and no longer?",
        (
            "It is missing or a wall of text.",
            "Several times longer than its matter, or a bare word.",
            "Half of it could go, or a needed sentence is missing.",
            "A sentence too many or too few.",
            "Nothing could go, nothing is missing.",
        ),
    ),
)

# Of the closing message: how it is put, by the style of who asked.
TONE = (
    Template(
        "tone_terse",
        "The user writes in few words. Does the closing message do so, too?",
        (
            "Long and chatty.",
            "Mostly padding around a short answer.",
            "Somewhat longer than the request's manner.",
            "Short, with one needless courtesy.",
            "Short and complete.",
        ),
        ("terse",),
    ),
    Template(
        "tone_chatty",
        "The user writes like someone who chats. Is the closing message friendly in"
        " return, and still to the point?",
        (
            "Cold or curt to the point of rudeness.",
            "Stiff as a form.",
            "Polite and impersonal.",
            "Friendly, a little stiff or a little wordy.",
            "Friendly and to the point.",
        ),
        ("chatty",),
    ),
    Template(
        "tone_bulleted",
        "The user asks in points. Can the closing message be checked off against them?",
        (
            "It answers none of the points.",
            "One lump of text in which points are lost.",
            "Most points are there, out of order.",
            "All points in order, one hard to find.",
            "Point by point, in the order asked.",
        ),
        ("bulleted",),
    ),
    Template(
        "tone_formal",
        "The user writes formally. Is the closing message in whole, polite sentences?",
        (
            "Slang, fragments or none at all.",
            "Fragments with a greeting.",
            "Whole sentences, some of them careless.",
            "Courteous throughout with one slip.",
            "Whole, courteous sentences.",
        ),
        ("formal",),
    ),
    Template(
        "tone_mail",
        "The user passed on a colleague's mail. Could the closing message go back to"
        " the colleague nearly as it is?",
        (
            "It makes no sense to anyone who has not seen the transcript.",
            "It would need to be written anew.",
            "It would need several changes.",
            "One sentence would have to change.",
            "It could be forwarded as it is.",
        ),
        ("forwarded mail",),
    ),
    Template(
        "tone_memo",
        "The user spoke the request aloud. Can the closing message be taken in at one"
        " hearing?",
        (
            "Tables, paths and code that can't be read aloud.",
            "Long sentences full of figures.",
            "Half of it can be followed.",
            "Easy to follow but for one passage.",
            "Short sentences that one hearing is enough for.",
        ),
        ("voice memo",),
    ),
)

# Of the transcript and the closing message: how the work was done and told.
WORK = (
    Template(
        "work_looked_first",
        "Did the agent look at the files that the work rests on before it wrote"
        " anything?",
        (
            "It wrote without looking.",
            "It looked only after something had failed.",
            "It looked at some of them.",
            "It looked at all, one only in passing.",
            "It looked at each before the first write.",
        ),
    ),
    Template(
        "work_looked_again",
        "Did the agent open what it had made before it said that it was done?",
        (
            "It looked at nothing that it had made.",
            "It listed names and opened none.",
            "It opened some of what it had made.",
            "It opened all, the last change excepted.",
            "It opened each after its last change.",
        ),
    ),
    Template(
        "work_computed",
        "Do the values come out of commands that read the files, not out of the"
        " agent's head?",
        (
            "They are typed in by hand.",
            "Most are typed in by hand.",
            "Some are computed, some typed in.",
            "All are computed, one step was done by eye.",
            "All are computed from the files.",
        ),
    ),
    Template(
        "work_steady",
        "Does the work go forward, without calls that repeat what has just failed?",
        (
            "The same failing call comes again and again.",
            "Long detours without need.",
            "Several needless repetitions.",
            "One needless repetition.",
            "Each call brings the work on.",
        ),
    ),
    Template(
        "work_careful",
        "Where files are moved, renamed, packed or removed: did the agent see what it"
        " would touch before it did so?",
        (
            "A broad removal or move went off unseen.",
            "It saw what it had touched only afterwards.",
            "It saw some of it before.",
            "It saw all before, and used a pattern wider than needed.",
            "It saw all before and touched no more than needed.",
        ),
        (
            "sort_files", "sort_by_month", "rename_by_rule", "number_files",
            "remove_copies", "clean_up", "archive_files", "zip_folder", "unpack",
        ),
    ),  # fmt: skip
    Template(
        "work_history",
        "Would a colleague find the repository's history in good order: the commit has"
        " one purpose and nothing strays into it?",
        (
            "History was lost or rewritten unasked.",
            "Scratch files or unrelated changes were committed.",
            "Sound, with needless extra commits.",
            "In good order but for one small stray.",
            "One purpose, one commit, nothing stray.",
        ),
        ("git",),
    ),
    Template(
        "told_outside",
        "Does the closing message say what left the workspace (to whom a message went,"
        " which appointment or job was changed)?",
        (
            "It does not mention it.",
            "It says that something was done and not what.",
            "It says what, and not for whom or when.",
            "It says all of it, one detail unclear.",
            "Whoever reads it knows exactly what happened out there.",
        ),
        ("sent", "event", "job"),
    ),
    Template(
        "told_rules",
        "Some of the work follows house rules of the skills in the workspace. Does the"
        " closing message say which it kept?",
        (
            "It contradicts what the skills say.",
            "It mentions skills and no rule.",
            "It mentions a rule in passing.",
            "It names the rule, not where it shows.",
            "It names the rule and where it shows.",
        ),
        ("skills",),
    ),
)

# Of one file that was handed over, by its kind or by the chore that made it.
FILES = (
    Template(
        "report_reads",
        "Does the report {path} read well: a heading, even lines, nothing dumped raw?",
        (
            "Raw output or no report.",
            "A list that one has to decipher.",
            "Readable, uneven in its lines or spacing.",
            "Reads well with one blemish.",
            "Could be handed to a client as it is.",
        ),
        ("report",),
    ),
    Template(
        "page_reads",
        "Does the page {path}, opened in a browser, read well: a title that says what"
        " it shows, a table one can scan, no raw markup?",
        (
            "Broken or raw markup.",
            "A bare heap of cells.",
            "A table one can read, without any title.",
            "Reads well with one blemish.",
            "Titled, even and easy to scan.",
        ),
        ("html",),
    ),
    Template(
        "markdown_reads",
        "Is the table in {path} easy to read both as text and rendered?",
        (
            "It does not render as a table.",
            "It renders with broken lines.",
            "It renders and is hard to read as text.",
            "Easy to read with one uneven spot.",
            "Easy to read in both forms.",
        ),
        ("markdown",),
    ),
    Template(
        "sentence_reads",
        "Does the line in {path} read as one clear statement?",
        (
            "Not to be understood.",
            "Understood only with the request beside it.",
            "Clear, with clumsy spacing or punctuation.",
            "Clear but for one small slip.",
            "One clear statement.",
        ),
        ("sentence",),
    ),
    Template(
        "data_layout",
        "Can a person read {path} in a text editor: indented evenly, one entry after"
        " the other?",
        (
            "It can't be parsed.",
            "All in one endless line.",
            "Broken into lines without a system.",
            "Even with one odd spot.",
            "Even throughout.",
        ),
        ("json", "json_map", "json_columns", "xml", "manifest", "merged_settings"),
    ),
    Template(
        "yaml_layout",
        "Is {path} laid out as people write YAML: even indentation, entries easy to"
        " tell apart?",
        (
            "It can't be parsed.",
            "Flow style or escapes that nobody reads.",
            "Readable with uneven indentation.",
            "Even with one odd spot.",
            "Even throughout.",
        ),
        ("yaml",),
    ),
    Template(
        "sql_layout",
        "Would a database administrator run {path} without tidying it up first: a"
        " statement a line, even quoting, nothing left over?",
        (
            "It does not run.",
            "It runs, and is one lump.",
            "It runs, with uneven quoting or layout.",
            "Tidy with one odd spot.",
            "Tidy throughout.",
        ),
        ("sql",),
    ),
    Template(
        "ini_layout",
        "Is {path} as easy to edit by hand as a good settings file: sections apart, one"
        " key a line, even spacing?",
        (
            "It can't be read as settings.",
            "Sections run into each other.",
            "Editable, with uneven spacing.",
            "Even with one odd spot.",
            "Even throughout.",
        ),
        ("ini",),
    ),
    Template(
        "log_layout",
        "Can the lines of {path} be scanned by eye and searched by a simple pattern?",
        (
            "Lines can't be told apart.",
            "Fields change places from line to line.",
            "Searchable, hard to scan.",
            "Easy on both counts but for one spot.",
            "Easy on both counts throughout.",
        ),
        ("log",),
    ),
    Template(
        "table_opens",
        "Does {path} open in a spreadsheet without a repair: quotes only where needed,"
        " no stray blanks, no index that nobody asked for?",
        (
            "It does not open as a table.",
            "It opens shifted or in one column.",
            "It opens, with stray quotes or blanks in many places.",
            "It opens with one stray spot.",
            "It opens clean.",
        ),
        ("csv", "tsv", "csv_semicolon"),
    ),
    Template(
        "entries_import",
        "Would {path} import into an everyday calendar or address book so that the user"
        " knows each entry again?",
        (
            "It would not import.",
            "Entries would be nameless or doubled.",
            "Entries would be recognised with effort.",
            "Each would be recognised, one oddly put.",
            "Each would be recognised at once.",
        ),
        ("ics", "vcard"),
    ),
    Template(
        "names_readable",
        "Could a colleague who gets {path} alone tell from its names and headings what"
        " it holds, without codes or abbreviations of the agent's own?",
        (
            "Names that say nothing.",
            "Names that only their maker understands.",
            "Some names are clear.",
            "All are clear but one.",
            "All are clear.",
        ),
        ("csv", "tsv", "csv_semicolon", "json", "jsonl", "yaml", "xml", "html", "sql"),
    ),
    Template(
        "memory_useful",
        "Will {path} be useful to somebody who reads it next month: the entry stands"
        " alone, in its place, among entries of its kind?",
        (
            "The entry can't be understood or is lost among others.",
            "Understood only with today's conversation.",
            "Understood, in an odd place or form.",
            "Useful with one small flaw.",
            "As useful then as today.",
        ),
        ("remember", "daily_note"),
    ),
    Template(
        "minutes_read",
        "Would someone who missed the meeting get along with {path} alone?",
        (
            "It says nothing of use.",
            "It leaves out who or what.",
            "All is there, hard to find.",
            "All is there, one part careless.",
            "All is there and easy to find.",
        ),
        ("minutes",),
    ),
    Template(
        "list_reads",
        "Is {path} a list that one can work through: one entry a line, alike in form,"
        " nothing beside them?",
        (
            "No list.",
            "Entries run into each other.",
            "A list with uneven entries.",
            "Even with one odd entry.",
            "Even throughout.",
        ),
        ("todo_list", "title_index", "sorted_list", "failing_tests", "damaged_files"),
    ),
    Template(
        "code_reads",
        "Is {path} code that a colleague would take over: clear names, no dead lines,"
        " no special case for the files at hand?",
        (
            "It answers for the files at hand only.",
            "Nobody but its maker could change it.",
            "It can be changed with effort.",
            "Clear, with one needless line.",
            "Clear throughout.",
        ),
        ("write_script", "fix_script"),
    ),
    Template(
        "settings_kept",
        "Does {path} look as its owner keeps it: layout, comments and key order are as"
        " they were, apart from what was asked for?",
        (
            "It was written anew in another form.",
            "Large parts were laid out anew.",
            "Some lines were laid out anew.",
            "One line more than needed looks different.",
            "Only what was asked for looks different.",
        ),
        ("json_value", "feature_off"),
    ),
)

TEMPLATES = (*CLOSING, *TONE, *WORK, *FILES)
