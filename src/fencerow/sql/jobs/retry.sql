-- retry: running -> scheduled | ready | failed when the attempts are spent | cancelled when that was asked
-- fence:   hold(): (lease, job, generation) and a lease that is alive after the lock wait
-- locks:   tickets FOR UPDATE in job order, until commit; then unique keys in key order
-- params:  p_kinds: failed, unavailable or timeout; p_errors; p_delays: time until the next attempt (0: at once)
-- returns: one answer per input, in their order; anything but accepted and already wrote nothing but a refusal
-- plan:    running_pkey, one probe per ticket; moved by tid, job_pkey and task_pkey for the policy
CREATE OR REPLACE FUNCTION fencerow.retry(
  p_lease bigint, p_jobs bigint[], p_generations bigint[], p_kinds text[], p_errors text[], p_delays interval[]
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
BEGIN
  IF NOT p_kinds <@ ARRAY['failed', 'unavailable', 'timeout'] THEN
    RAISE EXCEPTION 'kinds of a retry are failed, unavailable and timeout' USING ERRCODE = 'QF002';
  END IF;
  PERFORM fencerow.end_attempts(v_grip.tids, v_grip.at, p_kinds, p_errors, p_delays, false);
  RETURN QUERY SELECT * FROM fencerow.answers(
    'retry', p_lease, p_jobs, p_generations, v_grip.tids, p_kinds, NULL, p_errors);
END
$body$;
