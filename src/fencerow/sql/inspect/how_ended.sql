-- how_ended: how a job ended, for whoever waits for it: outcome, result, error and kind of its last attempt are NULL while it
-- lives (after a redrive it lives again); no row: it never was, was purged, or its enqueue is not committed yet.
CREATE OR REPLACE FUNCTION fencerow.how_ended(p_job bigint) RETURNS TABLE (
  task text, outcome text, result text, error text, kind text
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT j.task, e.outcome, e.result::text, e.error,
         (SELECT a.kind FROM fencerow.attempt AS a WHERE a.job_id = e.job_id AND a.generation = e.generation)
  FROM fencerow.job AS j LEFT JOIN fencerow.ended AS e ON e.job_id = j.id
  WHERE j.id = p_job
$body$;
