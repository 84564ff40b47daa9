"""What a schema holds, as text that two installations can be compared by."""

import psycopg

_QUERIES = (
    """
    SELECT 'function', p.proname, pg_get_functiondef(p.oid), coalesce(p.proacl::text, '')
    FROM pg_proc AS p WHERE p.pronamespace = n.oid
    """,
    """
    SELECT c.relkind::text, c.relname, coalesce(c.reloptions::text, '') || c.relpersistence::text,
           coalesce(obj_description(c.oid), '')
    FROM pg_class AS c WHERE c.relnamespace = n.oid
    """,
    """
    SELECT 'column', c.relname || '.' || a.attname,
           format_type(a.atttypid, a.atttypmod) || a.attnotnull || coalesce(pg_get_expr(d.adbin, d.adrelid), ''),
           a.attnum || ' ' || coalesce(l.collname, '')
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    WHERE c.relnamespace = n.oid AND a.attnum > 0 AND c.relkind IN ('r', 'v', 'c')
    """,
    """
    SELECT 'constraint', k.conname, pg_get_constraintdef(k.oid), ''
    FROM pg_constraint AS k WHERE k.connamespace = n.oid
    """,
    """
    SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), i.indisvalid::text
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relnamespace = n.oid
    """,
)


def catalog(dsn: str, schema: str = "fencerow") -> list[tuple[str, ...]]:
    """Every function, relation, column, constraint and index of a schema, sorted."""
    found: list[tuple[str, ...]] = []
    with psycopg.connect(dsn) as connection:
        for query in _QUERIES:
            text = f"SELECT x.* FROM pg_namespace AS n CROSS JOIN LATERAL ({query}) AS x WHERE n.nspname = %s"
            found += connection.execute(text.encode(), (schema,)).fetchall()
    return sorted(found)
