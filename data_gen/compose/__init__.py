"""Tasks composed of typed operations: read records, work on them, hand them over.

A task is a graph: record files of some kinds (`kinds`), operations on tables
(`operations`), deliverables (`sinks`) and chores beside them (`chores`). Each
module says what it asks, gives the calls that do it, and knows the result from
the world's own records, never by running those calls: solution and checks are
two ways to one answer. The calls hold only literals of the instruction, so on
the same request over other records (`Setting.reseeded`) they are right again.
"""
