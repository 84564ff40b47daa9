-- adopt: running -> running
-- fence:   the tickets must be under p_lease and the lease alive; generation and attempt stay, a new fence is drawn
-- locks:   none: the caller is the process that holds the lease, and has no other claim under way
-- params:  p_lease, p_jobs: tickets that renew() showed and the process does not hold (a claim whose reply was lost)
-- returns: the claims as claim() would have answered them, and the queue of each
-- plan:    running_pkey and job_pkey, one probe each per job
CREATE OR REPLACE FUNCTION fencerow.adopt(p_lease bigint, p_jobs bigint[]) RETURNS TABLE (
  job_id bigint, generation integer, attempt smallint, fence bigint, priority smallint, task text, payload text, extra jsonb, queue text
)
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $body$
#variable_conflict use_column
BEGIN
  PERFORM fencerow.require_read_committed();
  RETURN QUERY
  SELECT r.job_id, r.generation, r.attempt, (fencerow.timeline() << 48) + nextval('fencerow.fence'), j.priority, j.task,
         j.payload::text, fencerow.extra(j), j.queue
  FROM unnest(p_jobs) AS given(job_id)
  JOIN fencerow.running AS r ON r.lease_id = p_lease AND r.job_id = given.job_id
  JOIN fencerow.job AS j ON j.id = r.job_id
  WHERE EXISTS (SELECT FROM fencerow.lease AS l WHERE l.id = p_lease AND l.until > fencerow.now());
END
$body$;
