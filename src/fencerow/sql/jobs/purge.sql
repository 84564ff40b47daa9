-- purge: done | failed | cancelled -> deleted, once kept as long as its task says and its idempotency and unique key need it
-- fence:   none: an ended job is nobody's
-- locks:   ended rows FOR UPDATE SKIP LOCKED in job order, then unique keys past their time, SKIP LOCKED: a key that is
--          changing hands in this moment is left to whoever takes it. Waits for nothing
-- params:  p_after: go on above this job id (0: from the start); p_limit ended rows to look at
-- returns: how many jobs were deleted, and the last job id looked at (NULL: the walk is at its end)
-- plan:    ended_pkey from p_after, job_pkey and task_pkey per row
CREATE OR REPLACE FUNCTION fencerow.purge(
  p_after bigint DEFAULT 0, p_limit integer DEFAULT 1000, OUT purged bigint, OUT reached bigint
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
DECLARE
  v_at timestamptz := fencerow.now();
  v_jobs bigint[];
BEGIN
  PERFORM fencerow.require_read_committed();
  WITH looked AS MATERIALIZED (
    SELECT e.job_id, e.ended_at, e.outcome FROM fencerow.ended AS e
    WHERE e.job_id > p_after ORDER BY e.job_id LIMIT p_limit FOR UPDATE OF e SKIP LOCKED
  )
  SELECT max(l.job_id),
         array_agg(l.job_id) FILTER (WHERE l.ended_at <= v_at - CASE l.outcome
           WHEN 'failed' THEN coalesce(t.keep_failed, '30 days') ELSE coalesce(t.keep, '7 days') END
           AND (j.idempotency_key IS NULL OR l.ended_at <= v_at - interval '7 days')
           AND (u.until IS NULL OR u.until <= v_at))
  INTO reached, v_jobs
  FROM looked AS l
  JOIN fencerow.job AS j ON j.id = l.job_id
  LEFT JOIN fencerow.task AS t ON t.name = j.task
  LEFT JOIN fencerow.unique_key AS u ON u.key = j.unique_key AND u.job_id = j.id;

  DELETE FROM fencerow.idempotency_key AS i USING fencerow.job AS j
  WHERE j.id = ANY (v_jobs) AND i.key = j.idempotency_key AND i.job_id = j.id;
  DELETE FROM fencerow.attempt AS a WHERE a.job_id = ANY (v_jobs);
  DELETE FROM fencerow.refusal AS f WHERE f.job_id = ANY (v_jobs);
  DELETE FROM fencerow.ended AS e WHERE e.job_id = ANY (v_jobs);
  DELETE FROM fencerow.unique_key AS u
  USING (
    SELECT k.ctid AS tid
    FROM fencerow.job AS j JOIN fencerow.unique_key AS k ON k.key = j.unique_key AND k.job_id = j.id
    WHERE j.id = ANY (v_jobs) AND k.until <= v_at
    FOR UPDATE OF k SKIP LOCKED
  ) AS over
  WHERE u.ctid = over.tid;
  DELETE FROM fencerow.step AS s WHERE s.job_id = ANY (v_jobs);
  DELETE FROM fencerow.job AS j WHERE j.id = ANY (v_jobs);
  IF p_after = 0 THEN
    PERFORM fencerow.forget(v_at, p_limit);
  END IF;
  purged := coalesce(cardinality(v_jobs), 0);
END
$body$;
