"""What is said in composed tasks, of and by their people: kind -> (train, heldout).

In the form of `words.WORDS`, and joined into `pools.POOLS` in the same way.
Trades and intents have a kind for each scenario category; an intent follows on
"I need this".
"""

from __future__ import annotations

PHRASES = {
    "note_customer": (
        "asked for|called about|waits for|is happy with|complained about|wrote twice"
        " about",
        "wants to know about|phoned because of|insists on|was pleased with|is puzzled"
        " by|enquired after",
    ),
    "about_customer": (
        "the late delivery|the missing invoice|a larger size|a new address|the spare"
        " part|the summer discount",
        "the wrong colour|the double booking|a gift wrapping|a longer guarantee|the"
        " opening offer|the broken handle",
    ),
    "note_work": (
        "agreed with|waiting on|checked by|handed to|discussed with|copied from",
        "cleared with|depends on|verified by|passed on to|raised with|taken over from",
    ),
    "about_work": (
        "the front office|the external auditor|the new colleague|the morning team|the"
        " regional lead|the print shop",
        "the back office|the tax adviser|the deputy head|the evening team|the district"
        " lead|the copy centre",
    ),
    "note_tech": (
        "restarted after|slow since|reproduced with|looks related to|went away"
        " after|noticed during",
        "recovered after|noisy since|triggered by|seems tied to|disappeared"
        " with|spotted during",
    ),
    "about_tech": (
        "the last upgrade|a full disk|the new cache|an empty response|the certificate"
        " change|a clock jump",
        "the weekend patch|a stale lock|the retry loop|a missing header|the network"
        " move|a short outage",
    ),
    "note_field": (
        "found near|seen beside|collected below|measured above|photographed"
        " behind|heard from",
        "located by|observed under|sampled along|counted around|sketched"
        " across|recorded off",
    ),
    "about_field": (
        "the old bridge|the second gate|the stone wall|the wooden hut|the dry"
        " ditch|the bend of the river",
        "the fallen tree|the third marker|the chalk pit|the hay barn|the boat ramp|the"
        " foot of the slope",
    ),
    "note_study": (
        "explains|compares|argues against|builds on|introduces|sums up",
        "describes|contrasts|disputes|extends|presents|reviews",
    ),
    "about_study": (
        "slow travel|public gardens|early maps|shared kitchens|tidal power|simple"
        " tools",
        "night trains|street markets|old signs|open workshops|wind mills|small"
        " archives",
    ),
    "persona_context": (
        "works alone from a home office|shares a small office with two others|is on"
        " the road most of the week|runs the place with a business partner|covers for a"
        " colleague on leave|took the job over last month|works mornings only|has one"
        " trainee|answers to a volunteer board|manages three sites|is closing the books"
        " this week|prepares for an inspection|moved offices last week|supports an"
        " elderly boss|coordinates twenty volunteers|reports to head office every"
        " Monday",
        "rents a desk in a shared studio|sits next to the warehouse|spends half the"
        " week abroad|took over the family firm|stands in during a maternity"
        " leave|started only this spring|works nights and weekends|has two"
        " apprentices|answers to a city committee|looks after five branches|is merging"
        " two teams|gets ready for an audit|renovates the office right now|assists a"
        " busy director|coordinates a dozen freelancers|reports to the owners every"
        " quarter",
    ),
    "persona_tool": (
        "spreadsheets|a paper diary|a shared calendar|a label printer|a wiki|a kanban"
        " board|a phone camera|voice notes|a point-of-sale till|a mailing list|a"
        " scanner|a time tracker|a ticket system|a whiteboard photo album|a barcode"
        " reader|a booking portal",
        "plain text lists|a wall planner|a team calendar|a receipt printer|a knowledge"
        " base|a checklist app|a tablet|dictation software|a cash register|a group"
        " chat|a copier|a mileage log|a help desk inbox|a sketchbook|a stock terminal|a"
        " reservation system",
    ),
    "persona_habit": (
        "reads mail twice a day|keeps every receipt|never deletes anything|likes short"
        " answers|forwards before reading|names files by hand|plans on Sunday"
        " evening|writes in the train|drinks too much coffee|forgets"
        " attachments|double-checks totals|prints what matters|hates meetings|dictates"
        " while walking|archives once a year|starts before seven",
        "answers at once|collects sticky notes|throws out too much|likes long"
        " explanations|reads everything twice|tidies folders on Fridays|plans a month"
        " ahead|writes after midnight|lives on green tea|loses phone chargers|rounds"
        " nothing|photographs everything|loves lists|calls instead of typing|archives"
        " every quarter|starts after ten",
    ),
    "small_talk": (
        "the heating is off again|the printer has jammed twice|it has been raining"
        " since dawn|the neighbours are drilling|my bike has a flat tyre|the coffee"
        " machine is being repaired|the dog ate my lunch|the lift is stuck on the"
        " second floor|our intern bakes wonderful bread|the new chairs finally came",
        "the lights keep flickering|somebody parked in my spot|it has been snowing all"
        " week|the street is being dug up|my train was cancelled|the kettle has given"
        " up|the cat slept on my keyboard|the stairs are being painted|our trainee"
        " plays the cello|the new plants finally came",
    ),
    "log_event": (
        "cache warmed|session opened|session closed|queue drained|config"
        " read|heartbeat sent|snapshot taken|index checked",
        "pool filled|login seen|logout seen|backlog cleared|settings loaded|ping"
        " answered|copy written|checksum compared",
    ),
    "side_folder": (
        "stash misc drafts old admin reference",
        "attic sundry sketches former clerical background",
    ),
    "tone_word": ("calm brief warm dry cheerful", "sober frank gentle plain lively"),
    "trade_office": (
        "bakery owner|front desk clerk|wedding planner|choir secretary|office"
        " administrator|event caterer|household manager|shop floor lead|hostel manager",
        "brewery owner|reception clerk|funeral director|orchestra manager|office"
        " coordinator|canteen manager|housekeeper|stockroom lead",
    ),
    "trade_communication": (
        "community manager|customer care agent|press officer|newsletter editor|union"
        " organiser|fundraiser|parish clerk|radio producer|call centre lead",
        "social media lead|complaints officer|spokesperson|magazine editor|works"
        " councillor|donor liaison|town clerk|podcast producer",
    ),
    "trade_retrieval": (
        "bookshop manager|archivist|translator|market researcher|travel"
        " consultant|patent searcher|genealogist|media analyst|second-hand dealer",
        "antiquarian|records keeper|interpreter|desk researcher|cruise"
        " consultant|trademark searcher|local historian|press reader",
    ),
    "trade_analysis": (
        "purchasing analyst|pricing analyst|quality inspector|survey"
        " researcher|controller|lab technician|category manager|regional sales lead",
        "procurement analyst|revenue analyst|test engineer|opinion researcher|budget"
        " officer|research assistant|brand manager|district sales lead",
    ),
    "trade_automation": (
        "process engineer|document controller|integration specialist|smart home"
        " installer|payroll specialist|operations analyst|scanning clerk|data steward",
        "workflow engineer|forms controller|interface specialist|building automation"
        " fitter|claims specialist|operations planner|mailroom clerk|database steward",
    ),
    "trade_software": (
        "backend developer|mobile developer|test manager|release engineer|open source"
        " maintainer|frontend developer|engineering manager|technical writer",
        "web developer|game developer|quality engineer|build engineer|plugin"
        " author|embedded developer|tech lead|documentation lead",
    ),
    "trade_systems": (
        "systems administrator|network technician|storage engineer|site reliability"
        " engineer|help desk technician|security officer|web operator|hardware buyer",
        "infrastructure engineer|field technician|backup operator|platform"
        " engineer|support technician|access officer|hosting operator|asset keeper",
    ),
    "trade_planning": (
        "project manager|course organiser|freight planner|duty planner|library"
        " aide|festival planner|fleet coordinator|campsite warden|PhD student",
        "programme manager|evening school head|route planner|rota planner|reading"
        " circle host|exhibition planner|depot coordinator|harbour warden|law student",
    ),
    "trade_domains": (
        "dental receptionist|veterinary assistant|tax adviser|landscape"
        " gardener|letting agent|field biologist|notary clerk|beekeeper|civil"
        " engineer|goldsmith",
        "optical receptionist|zoo keeper|payroll accountant|tree surgeon|facility"
        " manager|ornithologist|court clerk|shepherd|surveyor|watchmaker",
    ),
    "intent_office": (
        "to close the month|before we order again|to settle up with everybody|so that"
        " nothing is paid twice|for the tidy-up of the office",
        "to finish the quarter|before the shelves are refilled|to pay people back|so"
        " that nothing is booked twice|for the handover of the keys",
    ),
    "intent_communication": (
        "so that nobody waits for an answer|to see who has not been heard|before the"
        " next mailing goes out|to get the guest list straight|for the talk with the"
        " support team",
        "so that no message is lost|to see who still has to be called|before the"
        " invitations are printed|to get the threads in order|for the review of the"
        " help line",
    ),
    "intent_retrieval": (
        "to answer a question from a reader|so that nobody has to leaf through it|for"
        " a footnote that is missing|to pick one of them with good conscience|before I"
        " call them",
        "to answer a question from a visitor|so that nobody has to scroll for"
        " hours|for a caption that is missing|to choose without regret|before I visit"
        " them",
    ),
    "intent_analysis": (
        "to decide what we drop|for the slide that everybody will look at|because the"
        " numbers are questioned|to compare it with last season|before the offer runs"
        " out",
        "to decide what we keep|for the chart on the first page|because the board"
        " doubts the figures|to hold it against the forecast|before the tender closes",
    ),
    "intent_automation": (
        "because the nightly check found something|to feed it into the next step|so"
        " that the queue moves again|to see why it stopped|for the people who run this"
        " after me",
        "because the hourly check complained|to hand it to the next system|so that the"
        " line moves again|to see where it got stuck|for whoever looks after this next",
    ),
    "intent_software": (
        "for the notes of the next release|to plan the sprint|before I tag it|to find"
        " out what broke|for the retrospective",
        "for the change log|to plan the iteration|before I merge it|to find out what"
        " regressed|for the post-mortem",
    ),
    "intent_systems": (
        "for the on-call handover|to see what needs replacing|because the audit asks"
        " for it|to free some room on the disks|before the maintenance window",
        "for the operations diary|to see what can be switched off|because the insurer"
        " asks for it|to plan the next purchase|before the migration starts",
    ),
    "intent_planning": (
        "to see what is late|for the plan on the wall|so that everybody knows their"
        " part|to fill the gaps of next week|before the kick-off",
        "to see what comes first|for the board in the hallway|so that nobody is"
        " planned twice|to fill the gaps of the summer|before the steering group meets",
    ),
    "intent_domains": (
        "for the file of the case|because the authority wants it|to prepare the"
        " visit|for the annual statement|to have it ready when they call",
        "for the record of the matter|because the inspector wants it|to prepare the"
        " appointment|for the closing statement|to have it at hand when they come",
    ),
}
