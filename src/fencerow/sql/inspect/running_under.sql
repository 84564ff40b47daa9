-- running_under: the jobs that a worker process holds now.
CREATE OR REPLACE FUNCTION fencerow.running_under(p_worker text) RETURNS TABLE (job_id bigint, generation integer, lease_id bigint)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT r.job_id, r.generation, r.lease_id
  FROM fencerow.lease AS l JOIN fencerow.running AS r ON r.lease_id = l.id
  WHERE l.worker = p_worker ORDER BY r.job_id
$body$;
