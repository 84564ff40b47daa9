-- results: how jobs ended: outcome and result; a job that has not ended has no row.
CREATE OR REPLACE FUNCTION fencerow.results(p_jobs bigint[]) RETURNS TABLE (
  job_id bigint, outcome text, generation integer, result text, error text
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT e.job_id, e.outcome, e.generation, e.result::text, e.error
  FROM unnest(p_jobs) AS given(job_id) JOIN fencerow.ended AS e ON e.job_id = given.job_id
$body$;
