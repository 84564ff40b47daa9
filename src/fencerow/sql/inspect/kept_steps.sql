-- kept_steps: what a job's handlers kept in earlier attempts, in the order of the steps, above a place; p_limit bounds what
-- is read at once.
CREATE OR REPLACE FUNCTION fencerow.kept_steps(p_job bigint, p_after integer DEFAULT 0, p_limit integer DEFAULT 100) RETURNS TABLE (
  place smallint, name text, code text, result text
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT s.place, s.name, s.code, s.result
  FROM fencerow.step AS s WHERE s.job_id = p_job AND s.place > p_after ORDER BY s.place LIMIT p_limit
$body$;
