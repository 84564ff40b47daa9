"""Rules that every SQL file of the engine keeps. Each takes one parsed file and returns its faults."""

from collections.abc import Callable
from typing import Any

from pglast import ast, enums

from tests.tidy.sqltree import CLAUSES, SCHEMA, SqlFile, header, is_definer, settings, walk

# Folders whose functions are called from outside; `rules` holds what these call.
CALLED = {"jobs", "queues", "workers", "inspect"}
SKIP = enums.LockWaitPolicy.LockWaitSkip
KNOWN = {SCHEMA, "pg_catalog"}
CLOCK_WORDS = ("SVFOP_CURRENT_TIME", "SVFOP_CURRENT_DATE", "SVFOP_LOCALTIME")
CLOCKS = {"clock_timestamp", "statement_timestamp", "transaction_timestamp", "now", "timeofday"}


def named_as_its_file(file: SqlFile) -> list[str]:
    if file.folder == "schema":
        return []
    made = [dotted(node.funcname) for node in file.functions]
    views = (node.view for node in file.statements if isinstance(node, ast.ViewStmt))
    made += [f"{view.schemaname}.{view.relname}" for view in views if view]
    return (
        []
        if set(made) == {f"{SCHEMA}.{file.stem}"}
        else [f"{file.name}: makes {made}, not one {SCHEMA}.{file.stem}"]
    )


def has_header(file: SqlFile) -> list[str]:
    if file.folder == "schema":
        return [] if file.text.startswith("-- ") else [f"{file.name}: no comment at the top"]
    if file.folder != "jobs":
        known = file.text.startswith(f"-- {file.stem}: ")
        return [] if known else [f"{file.name}: does not begin with `-- {file.stem}: `"]
    try:
        name, transition, clauses = header(file.text)
    except AssertionError as fault:
        return [f"{file.name}: {fault}"]
    faults = [] if name == file.stem else [f"{file.name}: the header speaks of {name}"]
    if transition.startswith("reads "):
        faults += [
            f"{file.name}: says that it reads, but has {verb} on {table}"
            for table, verb in sorted(writes(file))
        ]
    elif " -> " not in transition:
        faults.append(f"{file.name}: the header states no `from -> to`")
    if tuple(clauses) != CLAUSES:
        faults.append(f"{file.name}: clauses {list(clauses)}, not {list(CLAUSES)} in this order")
    return faults


def keeps_its_fence(file: SqlFile) -> list[str]:
    """A header that promises hold() has a body that calls it."""
    if file.folder != "jobs" or "-- fence:   hold()" not in file.text:
        return []
    calls = {dotted(node.funcname) for node in file.every_node() if isinstance(node, ast.FuncCall)}
    return [] if f"{SCHEMA}.hold" in calls else [f"{file.name}: promises hold() and does not call it"]


def pins_its_surroundings(file: SqlFile) -> list[str]:
    """A definer function has its owner's rights: the caller's search_path must not choose what it calls."""
    faults = []
    for function in file.functions:
        definer, pinned = is_definer(function), settings(function)
        if file.folder in CALLED and not definer:
            faults.append(f"{file.name}: not SECURITY DEFINER, so a role with EXECUTE alone cannot use it")
        if definer and pinned.get("search_path") != ["pg_catalog", "pg_temp"]:
            faults.append(f"{file.name}: SECURITY DEFINER without SET search_path = pg_catalog, pg_temp")
        if definer and _may_wait(file) and "lock_timeout" not in pinned:
            faults.append(f"{file.name}: locks rows without SET lock_timeout")
    return faults


def qualifies_names(file: SqlFile) -> list[str]:
    # The bodies were read with `public` standing for the space, so that one is looked for in the text.
    faults = [f"{file.name}: public. lies outside the space"] if "public." in file.text else []
    for root in (*file.statements, *file.queries):
        nodes = list(walk(root))
        local = {node.ctename for node in nodes if isinstance(node, ast.CommonTableExpr)}
        # FOR UPDATE OF names an alias, not a table.
        locks = [node for node in nodes if isinstance(node, ast.LockingClause)]
        aliases = {id(alias) for lock in locks for alias in lock.lockedRels or ()}
        for node in nodes:
            match node:
                case ast.RangeVar(schemaname=None, relname=name) if (
                    name not in local and id(node) not in aliases
                ):
                    faults.append(f"{file.name}: {name} without its schema")
                case ast.RangeVar(schemaname=str(schema), relname=name) if schema not in KNOWN:
                    faults.append(f"{file.name}: {schema}.{name} lies outside the space")
                case ast.FuncCall(funcname=(schema, name)) if schema.sval not in KNOWN:
                    faults.append(f"{file.name}: {schema.sval}.{name.sval}() lies outside the space")
                case _:
                    pass
    return faults


def makes_no_trigger(file: SqlFile) -> list[str]:
    return [
        f"{file.name}: CREATE TRIGGER" for node in file.statements if isinstance(node, ast.CreateTrigStmt)
    ]


def reads_one_clock(file: SqlFile) -> list[str]:
    """Time is fencerow.now() (its own file apart); a column's default is bookkeeping and decides nothing."""
    if file.name.endswith("rules/now.sql"):
        return []
    nodes = list(file.every_node())
    defaults = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.Constraint) and node.contype == enums.ConstrType.CONSTR_DEFAULT
        for inner in walk(node)
    }
    faults = []
    for node in nodes:
        if isinstance(node, ast.FuncCall) and id(node) not in defaults:
            name = dotted(node.funcname).removeprefix("pg_catalog.")
            if name in CLOCKS:
                faults.append(f"{file.name}: {name}() instead of {SCHEMA}.now()")
        if isinstance(node, ast.SQLValueFunction) and node.op and node.op.name.startswith(CLOCK_WORDS):
            faults.append(f"{file.name}: {node.op.name} instead of {SCHEMA}.now()")
    return faults


def says_what_it_skips(file: SqlFile) -> list[str]:
    """SKIP LOCKED in a join without OF also skips rows because of a lock on the other table."""
    faults = []
    for node in file.every_node():
        if isinstance(node, ast.SelectStmt) and node.lockingClause and _is_join(node):
            skipping = (
                lock for lock in node.lockingClause if lock.waitPolicy == SKIP and not lock.lockedRels
            )
            faults += [f"{file.name}: SKIP LOCKED over a join without OF" for _ in skipping]
    return faults


def names_its_columns(file: SqlFile) -> list[str]:
    """A star changes its meaning when a column is added; the row of an own function is its contract."""
    faults = []
    for node in file.every_node():
        if isinstance(node, ast.SelectStmt) and _has_star(node.targetList) and not _reads_own_function(node):
            faults.append(f"{file.name}: SELECT *")
        returning = getattr(node, "returningList", None) or getattr(
            getattr(node, "returningClause", None), "exprs", None
        )
        if returning and _has_star(returning):
            faults.append(f"{file.name}: RETURNING *")
    return faults


RULES: tuple[Callable[[SqlFile], list[str]], ...] = (
    named_as_its_file,
    has_header,
    keeps_its_fence,
    pins_its_surroundings,
    qualifies_names,
    makes_no_trigger,
    reads_one_clock,
    says_what_it_skips,
    names_its_columns,
)


def writes(file: SqlFile) -> set[tuple[str, str]]:
    """What the file's functions do to which table: (table, insert, update or delete)."""
    verbs = {
        ast.InsertStmt: "insert",
        ast.UpdateStmt: "update",
        ast.DeleteStmt: "delete",
        ast.MergeStmt: "merge",
    }
    found = set()
    for root in file.queries:
        for node in walk(root):
            match node:
                case ast.InsertStmt() | ast.UpdateStmt() | ast.DeleteStmt() | ast.MergeStmt():
                    assert node.relation
                    assert node.relation.relname
                    found.add((node.relation.relname, verbs[type(node)]))
                case _:
                    pass
    return found


def dotted(parts: Any) -> str:
    return ".".join(part.sval for part in parts)


def _may_wait(file: SqlFile) -> bool:
    """True when the file locks rows and may have to wait for them."""
    for root in file.queries:
        for node in walk(root):
            if isinstance(node, ast.UpdateStmt | ast.DeleteStmt):
                return True
            if isinstance(node, ast.LockingClause) and node.waitPolicy == enums.LockWaitPolicy.LockWaitBlock:
                return True
    return False


def _is_join(select: ast.SelectStmt) -> bool:
    sources = select.fromClause or ()
    return len(sources) > 1 or any(isinstance(source, ast.JoinExpr) for source in sources)


def _has_star(targets: Any) -> bool:
    return any(
        isinstance(target.val, ast.ColumnRef) and isinstance((target.val.fields or (None,))[-1], ast.A_Star)
        for target in targets or ()
    )


def _reads_own_function(select: ast.SelectStmt) -> bool:
    match select.fromClause:
        case (ast.RangeFunction(functions=((ast.FuncCall(funcname=name), *_), *_)),):
            return dotted(name).startswith(f"{SCHEMA}.")
        case _:
            return False
