-- recent_refusals: refused writes above an id, oldest first: who came too late, with what, and why.
CREATE OR REPLACE FUNCTION fencerow.recent_refusals(p_after bigint DEFAULT 0, p_limit integer DEFAULT 100) RETURNS TABLE (
  id bigint, job_id bigint, generation bigint, lease_id bigint, worker text, op text, verdict text,
  current_generation integer, at timestamptz
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT f.id, f.job_id, f.generation, f.lease_id, f.worker, f.op, f.verdict, f.current_generation, f.at
  FROM fencerow.refusal AS f WHERE f.id > p_after ORDER BY f.id LIMIT p_limit
$body$;
