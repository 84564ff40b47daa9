-- complete: running -> done
-- fence:   hold(): (lease, job, generation) and a lease that is alive after the lock wait
-- locks:   tickets FOR UPDATE in job order, until commit; then unique keys in key order
-- params:  p_lease, p_jobs, p_generations, p_results (NULL: no results), all of one length
-- returns: one answer per input, in their order; anything but accepted and already wrote nothing but a refusal
-- plan:    running_pkey, one probe per ticket; moved by tid
CREATE OR REPLACE FUNCTION fencerow.complete(
  p_lease bigint, p_jobs bigint[], p_generations bigint[], p_results jsonb[] DEFAULT NULL
) RETURNS SETOF fencerow.answer
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
  v_grip fencerow.grip := fencerow.hold(p_lease, p_jobs, p_generations);
  v_freed bigint[];
BEGIN
  WITH won AS (
    DELETE FROM fencerow.running AS r
    USING unnest(v_grip.tids, p_results) AS given(tid, result)
    WHERE r.ctid = given.tid
    RETURNING r.lease_id, r.job_id, r.claimed_at, r.generation, r.attempt, r.cancel_requested, r.key_until, given.result
  ), over AS (
    INSERT INTO fencerow.ended
      (job_id, lease_id, claimed_at, ended_at, generation, attempt, cancel_requested, outcome, result)
    SELECT w.job_id, w.lease_id, w.claimed_at, v_grip.at, w.generation, w.attempt, w.cancel_requested, 'done', w.result
    FROM won AS w
  )
  SELECT array_agg(w.job_id) FILTER (WHERE w.key_until = 'finished') INTO v_freed FROM won AS w;
  IF v_freed IS NOT NULL THEN
    PERFORM fencerow.free_keys(v_freed);
  END IF;
  RETURN QUERY SELECT * FROM fencerow.answers(
    'complete', p_lease, p_jobs, p_generations, v_grip.tids,
    array_fill('done'::text, ARRAY[cardinality(p_jobs)]), p_results, NULL);
END
$body$;
